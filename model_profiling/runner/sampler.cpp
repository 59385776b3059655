#include "sampler.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <cstdlib>
#include <vector>

#include "backend_clock.h"
#include "clock.h"
#include "json.h"
#include "loaded_code.h"

#if defined(__linux__)
#include <csignal>
#include <ctime>

#include <dirent.h>
#include <sched.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#endif

namespace sme2prof {
namespace {

// Two minutes of four threads at 1 kHz.
constexpr size_t kMostSamples = size_t{1} << 19;

struct Sample {
  int64_t time_ns;
  uintptr_t pc;
  uint32_t execution; // counted from 1
  BackendClock::Moment doing;
  uint32_t thread;
};

// Signal handlers reach it through `seen_by_handler`: it is filled before the first signal and freed after the last.
struct Record {
  std::unique_ptr<Sample[]> samples{new Sample[kMostSamples]()}; // written to now, so that no page is missing later
  std::atomic<size_t> taken{0};
  std::atomic<uint32_t> execution{0}; // 0 outside of executions
  std::vector<uint32_t> invocations_before; // of each execution
  int64_t period_ns = 0;

  void add(uint32_t thread, uintptr_t pc) {
    const uint32_t number = execution.load(std::memory_order_relaxed);
    if (number == 0) {
      return;
    }
    const BackendClock::Moment doing = BackendClock::now();
    if (execution.load(std::memory_order_relaxed) != number) {
      return; // it was held up in between: what is done now is another execution's
    }
    const int64_t time = now_ns();
    const size_t at = taken.fetch_add(1, std::memory_order_relaxed);
    if (at < kMostSamples) {
      samples[at] = {time, pc, number, doing, thread};
    }
  }
};

// Moments at even distances would see a program that repeats itself always at the same places.
struct Dice {
  uint64_t state;

  // Between half and three halves of `mean`.
  int64_t around(int64_t mean) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return mean / 2 + static_cast<int64_t>(state % static_cast<uint64_t>(mean > 0 ? mean : 1));
  }
};

} // namespace

#if defined(__linux__)

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace {

struct Timed {
  pid_t thread = 0;
  int timer = -1; // the kernel's number of it
  Dice dice{1};
};

struct Handled {
  Record record;
  std::vector<Timed> threads;
};

std::atomic<Handled*> seen_by_handler{nullptr};
std::atomic<uint32_t> handlers{0}; // that run now, in any thread
static_assert(std::atomic<uint32_t>::is_always_lock_free, "a signal handler writes it");

uintptr_t program_counter(const ucontext_t& context) {
#if defined(__aarch64__)
  return static_cast<uintptr_t>(context.uc_mcontext.pc);
#elif defined(__x86_64__)
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#else
  return 0;
#endif
}

void arm(Timed& timed, int64_t period_ns) {
  const int64_t wait = timed.dice.around(period_ns);
  itimerspec once{};
  once.it_value.tv_sec = static_cast<time_t>(wait / 1'000'000'000);
  once.it_value.tv_nsec = static_cast<long>(wait % 1'000'000'000) | 1; // zero would mean never
  syscall(SYS_timer_settime, timed.timer, 0, &once, nullptr);
}

// It runs on the thread's own stack: what the kernel saves of SME's ZA would not fit on a small one of its own.
void on_timer(int, siginfo_t* info, void* context) {
  const int kept = errno;
  handlers.fetch_add(1); // before it looks whether there is still something to write to
  Handled* const handled = seen_by_handler.load();
  const auto number = static_cast<size_t>(info->si_value.sival_int);
  if (handled != nullptr && info->si_code == SI_TIMER && number < handled->threads.size()) {
    handled->record.add(
        static_cast<uint32_t>(number), program_counter(*static_cast<const ucontext_t*>(context)));
    arm(handled->threads[number], handled->record.period_ns);
  }
  handlers.fetch_sub(1);
  errno = kept;
}

std::vector<pid_t> threads_now() {
  std::vector<pid_t> found;
  if (DIR* folder = opendir("/proc/self/task")) {
    while (const dirent* entry = readdir(folder)) {
      if (const long id = std::strtol(entry->d_name, nullptr, 10); id > 0) {
        found.push_back(static_cast<pid_t>(id));
      }
    }
    closedir(folder);
  }
  return found;
}

} // namespace

struct Sampler::Parts {
  Handled handled;
  Record& record = handled.record;
};

Sampler::Sampler(uint32_t hz) : hz_(hz), parts_(std::make_unique<Parts>()) {
  Handled& handled = parts_->handled;
  handled.record.period_ns = 1'000'000'000 / hz;
  struct sigaction action {};
  action.sa_sigaction = on_timer;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGPROF, &action, nullptr) != 0) {
    unavailable_ = "this system does not let a program handle SIGPROF";
    return;
  }
  for (const pid_t thread : threads_now()) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event.sigev_value.sival_int = static_cast<int>(handled.threads.size());
    event.sigev_notify_thread_id = thread;
    Timed timed;
    timed.thread = thread;
    timed.dice.state = 0x9E3779B97F4A7C15u * (handled.threads.size() + 1);
    // Asked of the kernel itself: older C libraries have it in a library of its own.
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timed.timer) != 0) {
      unavailable_ = std::string("this system has no timers for single threads: ") + std::strerror(errno);
      return;
    }
    handled.threads.push_back(timed);
  }
  if (handled.threads.empty()) {
    unavailable_ = "this system does not list the threads of a process";
    return;
  }
  seen_by_handler.store(&handled);
  for (Timed& timed : handled.threads) {
    arm(timed, handled.record.period_ns);
  }
}

void Sampler::stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  for (Timed& timed : parts_->handled.threads) {
    syscall(SYS_timer_delete, timed.timer);
  }
  seen_by_handler.store(nullptr);
  // A handler that was held up still writes.
  while (handlers.load() != 0) {
    sched_yield();
  }
  // A signal that is still on its way would end the process if nobody handled it.
  struct sigaction nobody {};
  nobody.sa_handler = SIG_IGN;
  sigaction(SIGPROF, &nobody, nullptr);
}

Sampler::~Sampler() {
  stop();
}

#else

struct Sampler::Parts {
  Record record;
  std::vector<int> threads;
};

Sampler::Sampler(uint32_t hz)
    : hz_(hz),
      unavailable_("threads are looked at on Linux only"),
      parts_(std::make_unique<Parts>()) {}

void Sampler::stop() {
  stopped_ = true;
}

Sampler::~Sampler() = default;

#endif

void Sampler::begin_execution(uint32_t invocations) {
  Record& record = parts_->record;
  record.invocations_before.push_back(invocations);
  record.execution.store(static_cast<uint32_t>(record.invocations_before.size()), std::memory_order_relaxed);
}

void Sampler::end_execution() {
  parts_->record.execution.store(0, std::memory_order_relaxed);
}

std::string Sampler::seen(const BackendClock& clock) {
  stop();
  const Record& record = parts_->record;
  const size_t taken = record.taken.load();
  const size_t kept = taken < kMostSamples ? taken : kMostSamples;
  const std::vector<CodeFile> files = loaded_code();
  const bool known = clock.unavailable().empty();
  std::vector<int64_t> time, offset;
  std::vector<uint32_t> execution, thread;
  std::vector<int32_t> call, op, file;
  for (size_t i = 0; i < kept; ++i) {
    const Sample& sample = record.samples[i];
    const int in = file_of(files, sample.pc);
    time.push_back(sample.time_ns);
    execution.push_back(sample.execution);
    const uint32_t before = record.invocations_before[sample.execution - 1];
    // A clock that came to doubt itself counted no further invocations.
    const bool in_call = known && sample.doing.invocation != BackendClock::kNone;
    const bool in_operator = in_call && sample.doing.op != BackendClock::kNone;
    call.push_back(in_call ? static_cast<int32_t>(sample.doing.invocation - before) : -1);
    op.push_back(in_operator ? static_cast<int32_t>(sample.doing.op) : -1);
    thread.push_back(sample.thread);
    file.push_back(in);
    offset.push_back(static_cast<int64_t>(in < 0 ? 0 : sample.pc - files[static_cast<size_t>(in)].base));
  }
#if defined(__linux__)
  const size_t threads = parts_->handled.threads.size();
#else
  const size_t threads = parts_->threads.size();
#endif
  // Of the calls in the first execution; those of the others are the same.
  const std::vector<uint32_t>& before = record.invocations_before;
  std::vector<size_t> operators;
  if (!before.empty() && known) {
    const uint32_t end = before.size() > 1 ? before[1] : clock.invocation_count();
    for (uint32_t i = before[0]; i < end; ++i) {
      operators.push_back(clock.invocation(i).ends_ns.size());
    }
  }
  const auto file_json = [](const CodeFile& each) {
    return json::Object()
        .add("path", json::text(each.path))
        .add("build_id", json::text_or_null(each.build_id))
        .str();
  };
  return json::Object()
      .add("schema_version", "1")
      .add("hz", std::to_string(hz_))
      .add("executions", std::to_string(record.invocations_before.size()))
      .add("threads", std::to_string(threads))
      .add("taken", std::to_string(taken))
      .add("unavailable", json::text_or_null(unavailable_))
      .add("unknown_operators", json::text_or_null(clock.unavailable()))
      .add("operators_of_calls", json::numbers(operators))
      .add("files", json::array(files, file_json))
      .add("time_ns", json::numbers(time))
      .add("execution", json::numbers(execution))
      .add("call", json::numbers(call))
      .add("operator", json::numbers(op))
      .add("thread", json::numbers(thread))
      .add("file", json::numbers(file))
      .add("offset", json::numbers(offset))
      .str();
}

} // namespace sme2prof
