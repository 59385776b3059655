#include "kernel_counts.h"

#include <algorithm>

#include <sys/mman.h>

// Where slots can be found (plt_slots.cpp), on the one machine that has KleidiAI kernels.
#if defined(__GLIBC__) && defined(__aarch64__)

#include <cstring>
#include <utility>

#include <dlfcn.h>

// Copied once per kernel, with the three literals at its end filled in. Every register that can hold an argument
// arrives at the kernel as it left the caller: the recording function between may clobber them, so they go through
// the stack. It is called outside of streaming mode, which kernels enter by themselves.
asm(R"(
  .pushsection .rodata
  .balign 8
  .global sme2prof_thunk_begin
  .global sme2prof_thunk_end
sme2prof_thunk_begin:
  stp  x29, x30, [sp, #-224]!
  mov  x29, sp
  stp  x0, x1, [sp, #16]
  stp  x2, x3, [sp, #32]
  stp  x4, x5, [sp, #48]
  stp  x6, x7, [sp, #64]
  str  x8, [sp, #80]
  stp  q0, q1, [sp, #96]
  stp  q2, q3, [sp, #128]
  stp  q4, q5, [sp, #160]
  stp  q6, q7, [sp, #192]
  ldr  x3, 2f
  ldr  x16, 4f
  blr  x16
  ldp  q6, q7, [sp, #192]
  ldp  q4, q5, [sp, #160]
  ldp  q2, q3, [sp, #128]
  ldp  q0, q1, [sp, #96]
  ldr  x8, [sp, #80]
  ldp  x6, x7, [sp, #64]
  ldp  x4, x5, [sp, #48]
  ldp  x2, x3, [sp, #32]
  ldp  x0, x1, [sp, #16]
  ldp  x29, x30, [sp], #224
  ldr  x16, 3f
  br   x16
  .balign 8
2:
  .quad 0
3:
  .quad 0
4:
  .quad 0
sme2prof_thunk_end:
  .popsection
)");
extern "C" const unsigned char sme2prof_thunk_begin[] __attribute__((visibility("hidden")));
extern "C" const unsigned char sme2prof_thunk_end[] __attribute__((visibility("hidden")));

namespace sme2prof {
namespace {

// What a thunk calls, with the kernel's own first arguments.
void record_call(uint64_t first, uint64_t second, uint64_t third, KernelRecord* record) noexcept {
  record->add(first, second, third);
}

constexpr char kKernelPrefix[] = "kai_run_";

bool is_kernel(const char* symbol) {
  return std::strncmp(symbol, kKernelPrefix, sizeof(kKernelPrefix) - 1) == 0;
}

std::vector<KernelSlot> kernel_slots(void* handle, std::string& problem) {
  std::vector<KernelSlot> slots;
  for (const CallSlot& slot : find_call_slots(handle, is_kernel, problem)) {
    void* kernel = slot.jump ? dlsym(handle, slot.symbol) : nullptr;
    if (kernel != nullptr) {
      slots.push_back({slot, kernel});
    }
  }
  return slots;
}

} // namespace

KernelCounts::KernelCounts(void* handle) {
  std::vector<KernelSlot> slots = kernel_slots(handle, unavailable_);
  if (!unavailable_.empty()) {
    return;
  }
  if (slots.empty()) {
    unavailable_ = "this XNNPACK backend does not call KleidiAI kernels through its PLT";
    return;
  }
  const size_t thunk_size = static_cast<size_t>(sme2prof_thunk_end - sme2prof_thunk_begin);
  const size_t code_size = thunk_size * slots.size();
  void* code = mmap(nullptr, code_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) {
    unavailable_ = "no memory for the counting thunks";
    return;
  }
  code_ = {code, Unmap{code_size}};
  records_ = std::make_unique<KernelRecord[]>(slots.size());
  void (*const called)(uint64_t, uint64_t, uint64_t, KernelRecord*) noexcept = record_call;
  auto* const thunks = static_cast<unsigned char*>(code);
  for (size_t i = 0; i < slots.size(); ++i) {
    KernelRecord* record = &records_[i];
    unsigned char* end = thunks + (i + 1) * thunk_size;
    std::memcpy(end - thunk_size, sme2prof_thunk_begin, thunk_size);
    std::memcpy(end - 24, &record, sizeof(record));
    std::memcpy(end - 16, &slots[i].kernel, sizeof(slots[i].kernel));
    std::memcpy(end - 8, &called, sizeof(called));
  }
  if (mprotect(code, code_size, PROT_READ | PROT_EXEC) != 0) {
    unavailable_ = "this system does not allow generated code";
    return;
  }
  __builtin___clear_cache(static_cast<char*>(code), static_cast<char*>(code) + code_size);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!patches_.point(slots[i].slot, thunks + i * thunk_size)) {
      patches_.undo();
      unavailable_ = "the PLT slots of the XNNPACK backend cannot be written";
      return;
    }
  }
  slots_ = std::move(slots);
}

} // namespace sme2prof

#else

namespace sme2prof {

KernelCounts::KernelCounts(void*) {
#if defined(__APPLE__)
  unavailable_ = "on macOS calls inside the XNNPACK library are direct and cannot be counted";
#elif !defined(__aarch64__)
  unavailable_ = "KleidiAI kernels exist on Arm only";
#else
  unavailable_ = "kernels are counted with the help of glibc, and this runner was built with another C library";
#endif
}

} // namespace sme2prof

#endif

namespace sme2prof {

KernelCounts::~KernelCounts() = default;

void KernelRecord::add(uint64_t first, uint64_t second, uint64_t third) noexcept {
  constexpr uint32_t kFree = 0, kWriting = 1, kWhole = 2;
  calls.fetch_add(1, std::memory_order_relaxed);
  for (Size& size : sizes) {
    uint32_t state = size.state.load(std::memory_order_acquire);
    if (state == kFree && size.state.compare_exchange_strong(state, kWriting, std::memory_order_acquire)) {
      size.arguments[0] = first;
      size.arguments[1] = second;
      size.arguments[2] = third;
      size.calls.store(1, std::memory_order_relaxed);
      size.state.store(kWhole, std::memory_order_release);
      return;
    }
    while (state != kWhole) {
      state = size.state.load(std::memory_order_acquire); // another thread writes three numbers
    }
    if (size.arguments[0] == first && size.arguments[1] == second && size.arguments[2] == third) {
      size.calls.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  other_sizes.fetch_add(1, std::memory_order_relaxed);
}

void KernelRecord::reset() {
  calls.store(0, std::memory_order_relaxed);
  other_sizes.store(0, std::memory_order_relaxed);
  for (Size& size : sizes) {
    size.state.store(0, std::memory_order_relaxed);
    size.calls.store(0, std::memory_order_relaxed);
  }
}

void KernelCounts::Unmap::operator()(void* code) const {
  munmap(code, size);
}

std::map<std::string, uint64_t> KernelCounts::snapshot() const {
  std::map<std::string, uint64_t> calls;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (const uint64_t n = records_[i].calls.load(std::memory_order_relaxed)) {
      calls[slots_[i].slot.symbol] += n;
    }
  }
  return calls;
}

std::map<std::string, std::vector<WorkSize>> KernelCounts::sizes() const {
  std::map<std::string, std::vector<WorkSize>> found;
  for (size_t i = 0; i < slots_.size(); ++i) {
    std::vector<WorkSize>& sizes = found[slots_[i].slot.symbol];
    for (const KernelRecord::Size& size : records_[i].sizes) {
      if (const uint64_t calls = size.calls.load(std::memory_order_relaxed)) {
        sizes.push_back({size.arguments[0], size.arguments[1], size.arguments[2], calls});
      }
    }
    if (const uint64_t calls = records_[i].other_sizes.load(std::memory_order_relaxed)) {
      sizes.push_back({0, 0, 0, calls});
    }
    std::stable_sort(
        sizes.begin(), sizes.end(), [](const WorkSize& a, const WorkSize& b) { return a.calls > b.calls; });
    if (sizes.empty()) {
      found.erase(slots_[i].slot.symbol);
    }
  }
  return found;
}

void KernelCounts::reset() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    records_[i].reset();
  }
}

} // namespace sme2prof
