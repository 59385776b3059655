"""Calls of a library are led elsewhere and back, however it was linked: lazily, at once, without a PLT."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model_profiling.core import process
from model_profiling.runner import build

LIBRARY = """
extern "C" int own() { return 1; }
extern "C" int asked() { return own(); }
"""
PROGRAM = r"""
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
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slots")
    (folder / "library.cpp").write_text(LIBRARY)
    (folder / "program.cpp").write_text(PROGRAM)
    sources = Path(build.__file__).parent
    compiler = build.find_compiler().command
    words = [*compiler, "-std=c++17", f"-I{sources}", folder / "program.cpp", sources / "plt_slots.cpp"]
    done = process.run([*words, "-o", folder / "program", "-ldl"], timeout=120)
    assert done.ok, done.tail()
    return folder / "program"


@pytest.mark.skipif(sys.platform != "linux", reason="slots are found with glibc")
@pytest.mark.parametrize(
    ("flags", "jump_and_closed"),
    [
        (("-Wl,-z,lazy", "-Wl,-z,relro"), "10 1"),
        (("-Wl,-z,now", "-Wl,-z,relro"), "11 0"),
        (("-fno-plt", "-Wl,-z,now", "-Wl,-z,relro"), "01 0"),
        (("-fno-plt", "-Wl,-z,norelro"), "00 1"),
    ],
)
def test_a_call_is_led_elsewhere_and_back(program, flags, jump_and_closed) -> None:
    library = program.with_name("library.so")
    made = [*build.find_compiler().command, "-shared", "-fPIC", *flags, program.with_name("library.cpp")]
    done = process.run([*made, "-o", library], timeout=60)
    assert done.ok, done.tail()
    answer = process.run([program, library], timeout=60)
    assert answer.ok and answer.stdout.strip() == f"2 1 {jump_and_closed}", answer.tail()
