#include "kernel_counts.h"

#include <sys/mman.h>

// Other C libraries on Linux (bionic, musl) give no link map or leave the addresses in it unrelocated.
#if defined(__GLIBC__) && defined(__aarch64__)

#include <cstring>
#include <utility>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

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

const ElfW(Dyn) * entry_of(const link_map* map, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == tag) {
      return entry;
    }
  }
  return nullptr;
}

std::vector<KernelSlot> kernel_slots(void* handle, const link_map* map) {
  std::vector<KernelSlot> slots;
  const auto* relocations = entry_of(map, DT_JMPREL);
  const auto* size = entry_of(map, DT_PLTRELSZ);
  const auto* symbols = entry_of(map, DT_SYMTAB);
  const auto* strings = entry_of(map, DT_STRTAB);
  if (!relocations || !size || !symbols || !strings) {
    return slots;
  }
  // glibc relocates these addresses in place.
  const auto* table = reinterpret_cast<const ElfW(Rela)*>(relocations->d_un.d_ptr);
  const auto* names = reinterpret_cast<const char*>(strings->d_un.d_ptr);
  const auto* symbol_table = reinterpret_cast<const ElfW(Sym)*>(symbols->d_un.d_ptr);
  for (size_t i = 0; i < size->d_un.d_val / sizeof(ElfW(Rela)); ++i) {
    if (ELF64_R_TYPE(table[i].r_info) != R_AARCH64_JUMP_SLOT) {
      continue;
    }
    const char* symbol = names + symbol_table[ELF64_R_SYM(table[i].r_info)].st_name;
    if (std::strncmp(symbol, kKernelPrefix, sizeof(kKernelPrefix) - 1) != 0) {
      continue;
    }
    if (void* kernel = dlsym(handle, symbol)) {
      slots.push_back({symbol, reinterpret_cast<void**>(map->l_addr + table[i].r_offset), kernel});
    }
  }
  return slots;
}

bool make_writable(const std::vector<KernelSlot>& slots) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const KernelSlot& slot : slots) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(slot.address) & ~(page - 1);
    if (mprotect(reinterpret_cast<void*>(begin), page, PROT_READ | PROT_WRITE) != 0) {
      return false;
    }
  }
  return true;
}

} // namespace

KernelCounts::KernelCounts(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    unavailable_ = "the loader does not say where the XNNPACK backend is";
    return;
  }
  std::vector<KernelSlot> slots = kernel_slots(handle, map);
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
  if (!make_writable(slots)) {
    unavailable_ = "the PLT slots of the XNNPACK backend cannot be written";
    return;
  }
  slots_ = std::move(slots);
  for (size_t i = 0; i < slots_.size(); ++i) {
    *slots_[i].address = thunks + i * thunk_size;
  }
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

KernelCounts::~KernelCounts() {
  for (const KernelSlot& slot : slots_) {
    *slot.address = slot.kernel;
  }
}

void KernelCounts::Unmap::operator()(void* code) const {
  munmap(code, size);
}

std::map<std::string, uint64_t> KernelCounts::snapshot() const {
  std::map<std::string, uint64_t> calls;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (const uint64_t n = counters_[i].load(std::memory_order_relaxed)) {
      calls[slots_[i].symbol] += n;
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
