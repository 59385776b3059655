// Counts calls of KleidiAI kernels by pointing the backend's PLT slots at small counting thunks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plt_slots.h"

namespace sme2prof {

// A place in the backend's PLT and the kernel it leads to.
struct KernelSlot {
  CallSlot slot;
  void* kernel;
};

class KernelCounts {
 public:
  // Patches the library that `handle` (from dlopen) names; it must stay open. On a platform where that cannot
  // be done, `unavailable()` says why and nothing is changed.
  explicit KernelCounts(void* handle);
  // Points the slots back at the kernels. No kernel may be running.
  ~KernelCounts();

  // The slots point at the thunks and the thunks at the counters: there is one owner of them.
  KernelCounts(const KernelCounts&) = delete;
  KernelCounts& operator=(const KernelCounts&) = delete;

  const std::string& unavailable() const {
    return unavailable_;
  }
  // Calls so far, kernels never called left out.
  std::map<std::string, uint64_t> snapshot() const;
  void reset();

 private:
  struct Unmap {
    size_t size;
    void operator()(void* code) const;
  };

  std::string unavailable_;
  std::vector<KernelSlot> slots_; // those that were patched
  std::unique_ptr<std::atomic<uint64_t>[]> counters_; // one for each slot
  std::unique_ptr<void, Unmap> code_{nullptr, Unmap{0}};
  SlotPatches patches_; // the last member: slots lead back before the thunks go
};

} // namespace sme2prof
