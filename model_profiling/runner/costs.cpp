#include "costs.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

namespace sme2prof {

using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;

namespace {

constexpr char kCreate[] = "xnn_create_runtime_v4";
constexpr char kReshape[] = "xnn_reshape_runtime";
constexpr char kSetUp[] = "xnn_setup_runtime_v2";

size_t page_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

struct Resident {
  int64_t all = 0;
  int64_t of_files = 0; // libraries and the program
};

Resident resident() {
  Resident bytes;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    long long all = 0;
    long long of_files = 0;
    if (std::fscanf(file, "%*d %lld %lld", &all, &of_files) == 2) {
      const auto page = static_cast<int64_t>(page_bytes());
      bytes = {all * page, of_files * page};
    }
    std::fclose(file);
  }
  return bytes;
}

struct Faults {
  int64_t minor;
  int64_t major;
};

Faults faults() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return {use.ru_minflt, use.ru_majflt};
}

// Of the mappings of one file.
int64_t resident_of(const std::string& path) {
  char real[PATH_MAX];
  FILE* file = realpath(path.c_str(), real) ? std::fopen("/proc/self/smaps", "r") : nullptr;
  if (file == nullptr) {
    return 0;
  }
  int64_t bytes = 0;
  bool its = false;
  char line[PATH_MAX + 256];
  while (std::fgets(line, sizeof(line), file)) {
    long long kilobytes = 0;
    if (std::sscanf(line, "Rss: %lld kB", &kilobytes) == 1) {
      bytes += its ? kilobytes * 1024 : 0;
    } else if (std::strchr("0123456789abcdef", line[0]) != nullptr) { // the first line of a mapping
      line[std::strcspn(line, "\n")] = '\0';
      const char* name = std::strchr(line, '/');
      its = name != nullptr && std::strcmp(name, real) == 0;
    }
  }
  std::fclose(file);
  return bytes;
}

// Asks the system to forget what it has read of a file; returns the share of it that is in the page cache still.
double cached_after_dropping([[maybe_unused]] const std::string& path) {
  double share = -1;
#if defined(__linux__)
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size > 0) {
    fdatasync(file); // pages that were just written stay until they are on the disk
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    const auto size = static_cast<size_t>(facts.st_size);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) {
      std::vector<unsigned char> pages((size + page_bytes() - 1) / page_bytes());
      if (mincore(mapped, size, pages.data()) == 0) {
        const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
        share = static_cast<double>(cached) / static_cast<double>(pages.size());
      }
      munmap(mapped, size);
    }
  }
  if (file >= 0) {
    close(file);
  }
#endif
  return share;
}

// XNNPACK's functions have six arguments or fewer, none of them floating point.
using Function = int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct XnnpackCalls {
  CostWatch* watch = nullptr; // the one there is
  bool inside = false; // XNNPACK calls these functions itself, too, to fold constants
  Function create = nullptr;
  Function reshape = nullptr;
  Function set_up = nullptr;
};
XnnpackCalls xnnpack_calls;

int watched(
    const char* name, Function real, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f) {
  if (xnnpack_calls.inside) {
    return real(a, b, c, d, e, f);
  }
  xnnpack_calls.inside = true;
  int status = 0;
  {
    const CostWatch::Inside stage(*xnnpack_calls.watch, name);
    status = real(a, b, c, d, e, f);
  }
  xnnpack_calls.inside = false;
  return status;
}

int create_runtime(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f) {
  return watched("pack", xnnpack_calls.create, a, b, c, d, e, f);
}

int reshape_runtime(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f) {
  return watched("set up", xnnpack_calls.reshape, a, b, c, d, e, f);
}

int set_up_runtime(uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f) {
  return watched("set up", xnnpack_calls.set_up, a, b, c, d, e, f);
}

struct CallHook {
  const char* symbol;
  Function ours;
  Function XnnpackCalls::* real;
};
constexpr CallHook kCallHooks[] = {
    {kCreate, &create_runtime, &XnnpackCalls::create},
    {kReshape, &reshape_runtime, &XnnpackCalls::reshape},
    {kSetUp, &set_up_runtime, &XnnpackCalls::set_up}};

const CallHook* call_hook_of(const char* symbol) {
  for (const CallHook& hook : kCallHooks) {
    if (std::strcmp(symbol, hook.symbol) == 0) {
      return &hook;
    }
  }
  return nullptr;
}

} // namespace

CostWatch::CostWatch(void* backend, const std::string& model, bool cold) : model_(model) {
  if (cold) {
    costs_.cached_share = cached_after_dropping(model);
  }
  std::string problem; // without these calls, what they do belongs to the stage that they are in
  xnnpack_calls = {};
  xnnpack_calls.watch = this;
  for (const CallSlot& slot :
       find_call_slots(backend, [](const char* symbol) { return call_hook_of(symbol) != nullptr; }, problem)) {
    const CallHook& hook = *call_hook_of(slot.symbol);
    xnnpack_calls.*hook.real = reinterpret_cast<Function>(dlsym(backend, hook.symbol));
    if (xnnpack_calls.*hook.real != nullptr) {
      patches_.point(slot, reinterpret_cast<void*>(hook.ours));
    }
  }
  const Faults now = faults();
  costs_.load_minor_faults = -now.minor;
  costs_.load_major_faults = -now.major;
  begin("read");
  costs_.stage_ns.clear(); // the runner's own time is no part of loading
}

CostWatch::~CostWatch() {
  patches_.undo();
}

void CostWatch::settle() {
  costs_.stage_ns[stage_] += now_ns() - since_ns_;
  const Resident bytes = resident();
  const int64_t own = bytes.all - bytes.of_files;
  added_bytes_[stage_] += own - own_bytes_;
  own_bytes_ = own;
  if (bytes.all > most_bytes_) {
    most_bytes_ = bytes.all;
    costs_.peak_stage = stage_;
    costs_.memory_bytes = added_bytes_;
    const int64_t program = resident_of(model_);
    costs_.memory_bytes["program"] = program;
    costs_.memory_bytes["libraries"] = bytes.of_files - program;
  }
  since_ns_ = now_ns();
}

void CostWatch::begin(const std::string& stage) {
  settle();
  stage_ = stage;
}

int64_t CostWatch::total_ns() const {
  return std::accumulate(
      costs_.stage_ns.begin(), costs_.stage_ns.end(), int64_t{0}, [](int64_t sum, const auto& stage) {
        return sum + stage.second;
      });
}

int64_t CostWatch::end_load() {
  begin("inputs");
  const Faults now = faults();
  costs_.load_minor_faults += now.minor;
  costs_.load_major_faults += now.major;
  costs_.first_minor_faults = -now.minor;
  return total_ns();
}

int64_t CostWatch::end_first_execution() {
  begin("");
  costs_.first_minor_faults += faults().minor;
  patches_.undo();
  return costs_.stage_ns["execute"] + costs_.stage_ns["set up"];
}

Result<FreeableBuffer> WatchedLoader::load(size_t offset, size_t size, const SegmentInfo& segment) const {
  const CostWatch::Inside stage(watch_, "read");
  Result<FreeableBuffer> loaded = inner_.load(offset, size, segment);
  const bool read_whole =
      segment.segment_type == SegmentInfo::Type::Program || segment.segment_type == SegmentInfo::Type::Backend;
  if (loaded.ok() && read_whole) {
    const auto* bytes = static_cast<const volatile uint8_t*>(loaded->data());
    for (size_t at = 0; at < loaded->size(); at += page_bytes()) {
      (void)bytes[at];
    }
  }
  return loaded;
}

} // namespace sme2prof
