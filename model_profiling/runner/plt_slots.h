// The places in which a loaded library keeps the addresses of the functions it calls by name, and writing to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace sme2prof {

struct CallSlot {
  const char* symbol; // in the library's own string table
  void** address;
  bool jump; // in the PLT; else a place in the GOT, from which code calls that was compiled without a PLT
  bool read_only; // the loader closed its page once relocation was done
};

// Those of the library that `handle` (from dlopen) names whose symbols are `wanted`. Where slots cannot be found,
// `problem` says why; a library that has none of them leaves it empty.
std::vector<CallSlot>
find_call_slots(void* handle, const std::function<bool(const char*)>& wanted, std::string& problem);

// Slots that lead elsewhere for as long as this lives. None of them may be in use when it begins or ends.
class SlotPatches {
 public:
  SlotPatches() = default;
  ~SlotPatches() {
    undo();
  }
  SlotPatches(const SlotPatches&) = delete;
  SlotPatches& operator=(const SlotPatches&) = delete;

  // False when its page cannot be written; the slot is then as it was.
  bool point(const CallSlot& slot, void* target);
  // Every slot leads where it led before.
  void undo();

 private:
  struct Patch {
    CallSlot slot;
    void* before;
  };
  std::vector<Patch> patches_;
};

} // namespace sme2prof
