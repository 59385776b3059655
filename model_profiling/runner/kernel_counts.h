// Counts calls of KleidiAI kernels, and keeps what they are told to work on, by pointing the backend's PLT slots at
// small thunks.
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

// How often a kernel was called with these first three arguments. What they mean is told by its name (m, n and k of
// a matrix product); those of a kernel are few, because tiles are of a few sizes.
struct WorkSize {
  uint64_t first;
  uint64_t second;
  uint64_t third;
  uint64_t calls;
};

// What the thunk of one kernel writes, from any thread.
struct KernelRecord {
  static constexpr size_t kMostSizes = 64;

  struct Size {
    std::atomic<uint32_t> state{0}; // free, being written, or whole
    uint64_t arguments[3] = {};
    std::atomic<uint64_t> calls{0};
  };

  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> other_sizes{0}; // calls for whose size there was no place
  Size sizes[kMostSizes];

  void add(uint64_t first, uint64_t second, uint64_t third) noexcept;
  void reset();
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
  // The sizes they were called with, most calls first; calls of sizes that found no place are of size 0, 0, 0.
  std::map<std::string, std::vector<WorkSize>> sizes() const;
  void reset();

 private:
  struct Unmap {
    size_t size;
    void operator()(void* code) const;
  };

  std::string unavailable_;
  std::vector<KernelSlot> slots_; // those that were patched
  std::unique_ptr<KernelRecord[]> records_; // one for each slot
  std::unique_ptr<void, Unmap> code_{nullptr, Unmap{0}};
  SlotPatches patches_; // the last member: slots lead back before the thunks go
};

} // namespace sme2prof
