#include "plt_slots.h"

// Other C libraries on Linux (bionic, musl) give no link map or leave the addresses in it unrelocated.
#if defined(__GLIBC__) && (defined(__aarch64__) || defined(__x86_64__))

#include <cstdint>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sme2prof {
namespace {

#if defined(__aarch64__)
constexpr auto kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr auto kGotSlot = R_AARCH64_GLOB_DAT;
#else
constexpr auto kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr auto kGotSlot = R_X86_64_GLOB_DAT;
#endif

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

uintptr_t page_size() {
  return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
}

const ElfW(Dyn) * entry_of(const link_map* map, ElfW(Sxword) tag) {
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == tag) {
      return entry;
    }
  }
  return nullptr;
}

struct RelroSearch {
  const link_map* map;
  Range found;
};

int look_for_relro(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<RelroSearch*>(data);
  if (info->dlpi_addr != search->map->l_addr) {
    return 0;
  }
  const uintptr_t page = page_size();
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type == PT_GNU_RELRO) {
      const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      // The loader closes whole pages only.
      search->found = {begin & ~(page - 1), (begin + header.p_memsz) & ~(page - 1)};
    }
  }
  return 1;
}

bool make_writable(void** address) {
  const uintptr_t page = page_size();
  void* begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) & ~(page - 1));
  return mprotect(begin, page, PROT_READ | PROT_WRITE) == 0;
}

void close_again(const CallSlot& slot) {
  if (slot.read_only) {
    const uintptr_t page = page_size();
    mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot.address) & ~(page - 1)), page, PROT_READ);
  }
}

} // namespace

std::vector<CallSlot>
find_call_slots(void* handle, const std::function<bool(const char*)>& wanted, std::string& problem) {
  std::vector<CallSlot> slots;
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) {
    problem = "the loader does not say where the XNNPACK backend is";
    return slots;
  }
  const auto* symbols = entry_of(map, DT_SYMTAB);
  const auto* strings = entry_of(map, DT_STRTAB);
  if (!symbols || !strings) {
    return slots;
  }
  // glibc relocates these addresses in place.
  const auto* names = reinterpret_cast<const char*>(strings->d_un.d_ptr);
  const auto* symbol_table = reinterpret_cast<const ElfW(Sym)*>(symbols->d_un.d_ptr);
  RelroSearch relro{map, {}};
  dl_iterate_phdr(look_for_relro, &relro);
  const auto take = [&](const ElfW(Dyn) * table, const ElfW(Dyn) * size, uint64_t type) {
    if (!table || !size) {
      return;
    }
    const auto* relocations = reinterpret_cast<const ElfW(Rela)*>(table->d_un.d_ptr);
    for (size_t i = 0; i < size->d_un.d_val / sizeof(ElfW(Rela)); ++i) {
      if (ELF64_R_TYPE(relocations[i].r_info) != type) {
        continue;
      }
      const char* symbol = names + symbol_table[ELF64_R_SYM(relocations[i].r_info)].st_name;
      if (wanted(symbol)) {
        const uintptr_t address = map->l_addr + relocations[i].r_offset;
        const bool closed = relro.found.begin <= address && address < relro.found.end;
        slots.push_back({symbol, reinterpret_cast<void**>(address), type == kJumpSlot, closed});
      }
    }
  };
  take(entry_of(map, DT_JMPREL), entry_of(map, DT_PLTRELSZ), kJumpSlot);
  take(entry_of(map, DT_RELA), entry_of(map, DT_RELASZ), kGotSlot);
  return slots;
}

bool SlotPatches::point(const CallSlot& slot, void* target) {
  if (!make_writable(slot.address)) {
    return false;
  }
  patches_.push_back({slot, *slot.address});
  *slot.address = target;
  close_again(slot);
  return true;
}

void SlotPatches::undo() {
  for (auto patch = patches_.rbegin(); patch != patches_.rend(); ++patch) {
    if (make_writable(patch->slot.address)) {
      *patch->slot.address = patch->before;
      close_again(patch->slot);
    }
  }
  patches_.clear();
}

} // namespace sme2prof

#else

namespace sme2prof {

std::vector<CallSlot> find_call_slots(void*, const std::function<bool(const char*)>&, std::string& problem) {
#if defined(__APPLE__)
  problem = "on macOS calls inside the XNNPACK library are direct and cannot be seen";
#elif defined(__linux__) && (defined(__aarch64__) || defined(__x86_64__))
  problem = "calls of the XNNPACK library are found with the help of glibc, and this runner was built with "
            "another C library";
#else
  problem = "on this machine it is not known where the XNNPACK library keeps the addresses it calls";
#endif
  return {};
}

bool SlotPatches::point(const CallSlot&, void*) {
  return false;
}

void SlotPatches::undo() {}

} // namespace sme2prof

#endif
