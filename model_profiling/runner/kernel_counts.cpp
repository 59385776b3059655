#include "kernel_counts.h"

#if defined(__linux__) && defined(__aarch64__)

#include <cstring>
#include <vector>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
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

struct Slot {
  const char* symbol;
  void** address;
  void* target;
};

const ElfW(Dyn) * entry_of(const link_map* map, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == tag) {
      return entry;
    }
  }
  return nullptr;
}

std::vector<Slot> kernel_slots(void* handle, const link_map* map) {
  std::vector<Slot> slots;
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
    if (void* target = dlsym(handle, symbol)) {
      slots.push_back({symbol, reinterpret_cast<void**>(map->l_addr + table[i].r_offset), target});
    }
  }
  return slots;
}

bool make_writable(const std::vector<Slot>& slots) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const Slot& slot : slots) {
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
  const std::vector<Slot> slots = kernel_slots(handle, map);
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
  auto* counters = new uint64_t[slots.size()]();
  auto* place = static_cast<unsigned char*>(code);
  for (size_t i = 0; i < slots.size(); ++i, place += thunk_size) {
    const uint64_t* counter = &counters[i];
    std::memcpy(place, sme2prof_thunk_begin, thunk_size);
    std::memcpy(place + thunk_size - 16, &counter, sizeof(counter));
    std::memcpy(place + thunk_size - 8, &slots[i].target, sizeof(slots[i].target));
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
  for (size_t i = 0; i < slots.size(); ++i) {
    *slots[i].address = static_cast<unsigned char*>(code) + i * thunk_size;
    counters_[slots[i].symbol] = &counters[i];
  }
}

} // namespace sme2prof

#else

namespace sme2prof {

KernelCounts::KernelCounts(void*) {
#if defined(__APPLE__)
  unavailable_ = "on macOS calls inside the XNNPACK library are direct and cannot be counted";
#else
  unavailable_ = "KleidiAI kernels exist on Arm only";
#endif
}

} // namespace sme2prof

#endif

namespace sme2prof {

std::map<std::string, uint64_t> KernelCounts::snapshot() const {
  std::map<std::string, uint64_t> calls;
  for (const auto& [symbol, counter] : counters_) {
    if (const uint64_t n = __atomic_load_n(counter, __ATOMIC_RELAXED)) {
      calls[symbol] = n;
    }
  }
  return calls;
}

void KernelCounts::reset() {
  for (const auto& entry : counters_) {
    __atomic_store_n(entry.second, 0, __ATOMIC_RELAXED);
  }
}

} // namespace sme2prof
