#include "kernel_counts.h"

#include <sys/mman.h>

// Where slots can be found (plt_slots.cpp), on the one machine that has KleidiAI kernels.
#if defined(__GLIBC__) && defined(__aarch64__)

#include <cstring>
#include <utility>

#include <dlfcn.h>

// Copied once per kernel, with the two literals at its end filled in. It may use x16 and x17 alone (the
// registers a PLT call may clobber), so the two more that an exclusive increment needs go through the stack:
// every argument register arrives at the kernel as it left the caller.
asm(R"(
  .pushsection .rodata
  .balign 8
  .global sme2prof_thunk_begin
  .global sme2prof_thunk_end
sme2prof_thunk_begin:
  stp  x0, x1, [sp, #-16]!
  ldr  x16, 2f
1:
  ldxr x0, [x16]
  add  x0, x0, #1
  stxr w1, x0, [x16]
  cbnz w1, 1b
  ldp  x0, x1, [sp], #16
  ldr  x16, 3f
  br   x16
  nop
2:
  .quad 0
3:
  .quad 0
sme2prof_thunk_end:
  .popsection
)");
extern "C" const unsigned char sme2prof_thunk_begin[] __attribute__((visibility("hidden")));
extern "C" const unsigned char sme2prof_thunk_end[] __attribute__((visibility("hidden")));

namespace sme2prof {
namespace {

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
  counters_ = std::make_unique<std::atomic<uint64_t>[]>(slots.size());
  auto* const thunks = static_cast<unsigned char*>(code);
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::atomic<uint64_t>* counter = &counters_[i];
    unsigned char* end = thunks + (i + 1) * thunk_size;
    std::memcpy(end - thunk_size, sme2prof_thunk_begin, thunk_size);
    std::memcpy(end - 16, &counter, sizeof(counter));
    std::memcpy(end - 8, &slots[i].kernel, sizeof(slots[i].kernel));
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

void KernelCounts::Unmap::operator()(void* code) const {
  munmap(code, size);
}

std::map<std::string, uint64_t> KernelCounts::snapshot() const {
  std::map<std::string, uint64_t> calls;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (const uint64_t n = counters_[i].load(std::memory_order_relaxed)) {
      calls[slots_[i].slot.symbol] += n;
    }
  }
  return calls;
}

void KernelCounts::reset() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    counters_[i].store(0, std::memory_order_relaxed);
  }
}

} // namespace sme2prof
