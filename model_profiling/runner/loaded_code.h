// The files whose code is in this process: where each begins, and which build it is. An address is told to others
// relative to its file, so that it means the same after the process has ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sme2prof {

struct CodeFile {
  std::string path;
  std::string build_id; // in hexadecimal; empty where the file has none
  uintptr_t base = 0; // what the file calls address 0 (ELF), or its header (Mach-O)
  struct Range {
    uintptr_t begin;
    uintptr_t end;
  };
  std::vector<Range> code;
};

// As they are now; not to be called from a signal handler.
std::vector<CodeFile> loaded_code();

// The place in `files` of the one that `address` lies in, or -1.
int file_of(const std::vector<CodeFile>& files, uintptr_t address);

} // namespace sme2prof
