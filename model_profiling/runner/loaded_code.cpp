#include "loaded_code.h"

#include <cstring>

#if defined(__linux__)
#include <link.h>
#include <unistd.h>
#endif

namespace sme2prof {
namespace {

#if defined(__linux__)

std::string hexadecimal(const unsigned char* bytes, size_t count) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

std::string build_id_of(const char* notes, size_t size) {
  constexpr uint32_t kBuildId = 3; // NT_GNU_BUILD_ID
  size_t at = 0;
  while (size - at >= 12) {
    uint32_t head[3]; // lengths of name and description, type
    std::memcpy(head, notes + at, sizeof(head));
    const size_t name = at + 12;
    const size_t description = name + ((size_t{head[0]} + 3) & ~size_t{3});
    const size_t next = description + ((size_t{head[1]} + 3) & ~size_t{3});
    if (next > size) {
      break;
    }
    if (head[2] == kBuildId && head[0] == 4 && std::memcmp(notes + name, "GNU", 4) == 0) {
      return hexadecimal(reinterpret_cast<const unsigned char*>(notes + description), head[1]);
    }
    at = next;
  }
  return "";
}

std::string own_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

int add_file(dl_phdr_info* info, size_t, void* found) {
  auto& files = *static_cast<std::vector<CodeFile>*>(found);
  CodeFile file;
  const bool unnamed = info->dlpi_name == nullptr || *info->dlpi_name == '\0';
  // The program itself comes first and without a name.
  file.path = !unnamed ? info->dlpi_name : files.empty() ? own_path() : "";
  file.base = static_cast<uintptr_t>(info->dlpi_addr);
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const uintptr_t begin = file.base + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
      file.code.push_back({begin, begin + segment.p_memsz});
    } else if (segment.p_type == PT_NOTE && file.build_id.empty()) {
      file.build_id = build_id_of(reinterpret_cast<const char*>(begin), segment.p_memsz);
    }
  }
  files.push_back(std::move(file));
  return 0;
}

#endif

} // namespace

std::vector<CodeFile> loaded_code() {
  std::vector<CodeFile> files;
#if defined(__linux__)
  dl_iterate_phdr(add_file, &files);
#endif
  return files;
}

int file_of(const std::vector<CodeFile>& files, uintptr_t address) {
  for (size_t i = 0; i < files.size(); ++i) {
    for (const CodeFile::Range& range : files[i].code) {
      if (range.begin <= address && address < range.end) {
        return static_cast<int>(i);
      }
    }
  }
  return -1;
}

} // namespace sme2prof
