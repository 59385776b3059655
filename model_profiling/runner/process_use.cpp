#include "process_use.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
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

#if defined(__linux__)
std::string first_line(const std::string& path) {
  std::string line;
  if (FILE* file = std::fopen(path.c_str(), "r")) {
    char found[512];
    line.assign(found, std::fread(found, 1, sizeof(found), file));
    std::fclose(file);
  }
  return line;
}

std::vector<long> own_threads() {
  std::vector<long> found;
  if (DIR* tasks = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(tasks)) {
      if (entry->d_name[0] != '.') {
        found.push_back(std::atol(entry->d_name));
      }
    }
    closedir(tasks);
  }
  return found;
}

std::string about_thread(long thread, const char* what) {
  return first_line("/proc/self/task/" + std::to_string(thread) + "/" + what);
}

std::vector<int> allowed_cores() {
  std::vector<int> found;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) {
      found.push_back(core);
    }
  }
  return found;
}

void allow(long thread, const std::vector<int>& cores) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (const int core : cores) {
    CPU_SET(core, &allowed);
  }
  sched_setaffinity(static_cast<pid_t>(thread), sizeof(allowed), &allowed);
}

bool of_one_kind(const std::vector<int>& cores) {
  std::set<std::string> kinds;
  for (const int core : cores) {
    kinds.insert(first_line("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpu_capacity"));
  }
  return kinds.size() == 1;
}
#endif

// Whether the scheduler has another thread of this process running or waiting for a core; nothing where it does
// not say. A worker that spins but was robbed of its core uses no CPU time and would pass for an idle one.
std::optional<bool> another_thread_runs() {
#if defined(__linux__)
  const std::vector<long> threads = own_threads();
  if (threads.empty()) {
    return std::nullopt;
  }
  const long own = syscall(SYS_gettid);
  return std::any_of(threads.begin(), threads.end(), [own](long thread) {
    // The name in brackets may hold anything; the state stands behind the last one.
    const std::string line = thread == own ? "" : about_thread(thread, "stat");
    const size_t bracket = line.rfind(')');
    const std::string state = bracket == std::string::npos ? "" : line.substr(bracket, 3);
    return state == ") R" || state == ") D";
  });
#else
  return std::nullopt;
#endif
}

// The same told from CPU time: what the other threads used during a pause.
bool others_used_cpu_time() {
  const auto others = [] { return process_cpu_ns() - thread_cpu_ns(); };
  const int64_t before = others();
  pause();
  return others() - before > kPauseNs / 20;
}

} // namespace

int64_t process_cpu_ns() {
  return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

int64_t thread_cpu_ns() {
  return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int64_t preemptions([[maybe_unused]] size_t threads) {
  int who = RUSAGE_SELF;
#if defined(__linux__)
  if (threads == 1) {
    who = RUSAGE_THREAD; // quicker
  }
#endif
  rusage usage{};
  getrusage(who, &usage);
  return usage.ru_nivcsw;
}

int64_t current_cpu() {
#if defined(__linux__)
  unsigned cpu = 0;
  return syscall(SYS_getcpu, &cpu, nullptr, nullptr) == 0 ? static_cast<int64_t>(cpu) : -1;
#else
  return -1;
#endif
}

int64_t waited_for_core_ns() {
  int64_t waited = -1;
#if defined(__linux__)
  for (const long thread : own_threads()) {
    long long ran = 0;
    long long ready = 0;
    if (std::sscanf(about_thread(thread, "schedstat").c_str(), "%lld %lld", &ran, &ready) == 2) {
      waited = std::max<int64_t>(waited, 0) + ready;
    }
  }
#endif
  return waited;
}

ThreadsApart::ThreadsApart([[maybe_unused]] size_t threads) {
#if defined(__linux__)
  const std::vector<long> own = own_threads();
  const std::vector<int> cores = allowed_cores();
  if (threads < 2 || own.size() != threads || cores.size() != threads || !of_one_kind(cores)) {
    return;
  }
  for (size_t i = 0; i < threads; ++i) {
    allow(own[i], {cores[i]});
  }
  cores_ = cores;
#endif
}

ThreadsApart::~ThreadsApart() {
#if defined(__linux__)
  if (!cores_.empty()) {
    for (const long thread : own_threads()) {
      allow(thread, cores_);
    }
  }
#endif
}

void go_first([[maybe_unused]] size_t threads) {
#if defined(__linux__)
  if (threads == 1) {
    sched_param lowest{};
    lowest.sched_priority = sched_get_priority_min(SCHED_FIFO);
    sched_setscheduler(0, SCHED_FIFO, &lowest); // refused to ordinary users, which changes nothing for them
  }
#endif
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
