#include "process_use.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "clock.h"

namespace sme2prof {
namespace {

constexpr int64_t kPatienceNs = 1'000'000'000;
constexpr int64_t kPauseNs = 50'000;

int64_t clock_ns(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void pause() {
  const timespec time{0, kPauseNs};
  nanosleep(&time, nullptr);
}

// Whether the scheduler has another thread of this process running or waiting for a core; nothing where it does
// not say. A worker that spins but was robbed of its core uses no CPU time and would pass for an idle one.
std::optional<bool> another_thread_runs() {
#if defined(__linux__)
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) {
    return std::nullopt;
  }
  const long own = syscall(SYS_gettid);
  bool runs = false;
  while (const dirent* entry = readdir(tasks)) {
    if (entry->d_name[0] == '.' || std::atol(entry->d_name) == own) {
      continue;
    }
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", entry->d_name);
    if (FILE* file = std::fopen(path, "r")) {
      char line[512];
      const size_t size = std::fread(line, 1, sizeof(line) - 1, file);
      std::fclose(file);
      line[size] = '\0';
      // The name in brackets may hold anything; the state stands behind the last one.
      const char* bracket = std::strrchr(line, ')');
      runs = runs || (bracket != nullptr && (std::strncmp(bracket, ") R", 3) == 0 || std::strncmp(bracket, ") D", 3) == 0));
    }
  }
  closedir(tasks);
  return runs;
#else
  return std::nullopt;
#endif
}

// The same told from CPU time: what the other threads used during a pause.
bool others_used_cpu_time() {
  const auto others = [] { return process_cpu_ns() - clock_ns(CLOCK_THREAD_CPUTIME_ID); };
  const int64_t before = others();
  pause();
  return others() - before > kPauseNs / 20;
}

} // namespace

ProcessUse& ProcessUse::operator+=(const ProcessUse& other) {
  cpu_ns += other.cpu_ns;
  voluntary_switches += other.voluntary_switches;
  involuntary_switches += other.involuntary_switches;
  minor_faults += other.minor_faults;
  major_faults += other.major_faults;
  return *this;
}

ProcessUse ProcessUse::operator-(const ProcessUse& other) const {
  return {
      cpu_ns - other.cpu_ns,
      voluntary_switches - other.voluntary_switches,
      involuntary_switches - other.involuntary_switches,
      minor_faults - other.minor_faults,
      major_faults - other.major_faults};
}

int64_t process_cpu_ns() {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t current_cpu() {
#if defined(__linux__)
  unsigned cpu = 0;
  return syscall(SYS_getcpu, &cpu, nullptr, nullptr) == 0 ? static_cast<int64_t>(cpu) : -1;
#else
  return -1;
#endif
}

ProcessUse process_use() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {process_cpu_ns(), usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_minflt, usage.ru_majflt};
}

IdleWait wait_for_other_threads() {
  const int64_t began = now_ns();
  IdleWait wait;
  for (;;) {
    const std::optional<bool> runs = another_thread_runs();
    const bool busy = runs ? *runs : others_used_cpu_time();
    wait.waited_ns = now_ns() - began;
    if (!busy) {
      return wait;
    }
    if (wait.waited_ns > kPatienceNs) {
      wait.exceeded = true;
      return wait;
    }
    pause();
  }
}

} // namespace sme2prof
