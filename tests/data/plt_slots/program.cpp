#include "plt_slots.h"
#include <cstdio>
#include <cstring>
#include <fstream>
#include <dlfcn.h>

static int other() { return 2; }

// Whether the page of `address` may be written to.
static bool writable(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    unsigned long begin = 0, end = 0;
    char rights[5] = "";
    std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights);
    const auto at = reinterpret_cast<unsigned long>(address);
    if (begin <= at && at < end) {
      return rights[1] == 'w';
    }
  }
  return false;
}

int main(int, char** words) {
  void* library = dlopen(words[1], RTLD_LAZY);
  const auto asked = reinterpret_cast<int (*)()>(dlsym(library, "asked"));
  std::string problem;
  const auto slots = sme2prof::find_call_slots(
      library, [](const char* symbol) { return std::strcmp(symbol, "own") == 0; }, problem);
  if (slots.size() != 1 || !problem.empty()) {
    std::printf("%zu slots %s\n", slots.size(), problem.c_str());
    return 1;
  }
  const bool open_before = writable(slots[0].address);
  int during = 0;
  {
    sme2prof::SlotPatches patches;
    if (!patches.point(slots[0], reinterpret_cast<void*>(&other))) {
      return 1;
    }
    during = asked();
    if (writable(slots[0].address) != open_before) {
      return 1;
    }
  }
  const bool open_after = writable(slots[0].address);
  std::printf("%d %d %d%d %d\n", during, asked(), slots[0].jump, slots[0].read_only, open_after);
  return 0;
}
