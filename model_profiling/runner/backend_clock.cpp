#include "backend_clock.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <utility>

#include <dlfcn.h>
#include <time.h>

#include <executorch/runtime/platform/platform.h>

namespace sme2prof {
namespace {

using Invoke = int (*)(void* runtime);
using ProfilingInfo = int (*)(void* runtime, int what, size_t size, void* value, size_t* needed);

constexpr char kClock[] = "clock_gettime";
constexpr char kInvoke[] = "xnn_invoke_runtime";
constexpr char kInfo[] = "xnn_get_runtime_profiling_info";
constexpr int kOperatorTiming = 2; // xnn_profile_info_operator_timing
constexpr char kMagic[] = "SME2PBND";
constexpr uint32_t kVersion = 1;
constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kMicrosecondsInSecond = 1'000'000;

// A delegate, and how often XNNPACK looks at the clock for each of its operators.
struct Runtime {
  void* address = nullptr;
  bool known = false;
  std::vector<uint32_t> looks;
  std::vector<uint32_t> op_after; // the operator that runs after look i, for all looks but the last
};

struct Kept {
  uint32_t runtime;
  size_t first; // its first time among all times
};

int64_t to_ns(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
}

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return to_ns(now);
}

// Invocation and operator in one word, so that a handler sees both of one moment.
std::atomic<uint64_t> moment{UINT64_MAX};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a signal handler reads it");

void set_moment(uint32_t invocation, uint32_t op) {
  moment.store(static_cast<uint64_t>(invocation) << 32 | op, std::memory_order_relaxed);
}

} // namespace

class Recorder {
 public:
  Invoke real_invoke = nullptr;
  ProfilingInfo real_info = nullptr;
  std::string problem;
  bool counting_looks = true; // in the first invocation of each delegate
  std::vector<Runtime> runtimes;
  std::deque<Kept> kept;
  std::deque<int64_t> times; // grows without moving what it holds, while a model runs

  void begin(void* address);
  void look(timespec* now);
  void told_timing(void* address, const uint64_t* told, size_t operators);

 private:
  uint32_t number_of(void* address);
  void learn(Runtime& runtime, const uint64_t* told, size_t operators);

  void* invoked_ = nullptr; // the delegate whose looks are in seen_
  uint32_t runtime_ = 0;
  bool pretending_ = false; // it is shown the counting clock
  std::vector<int64_t> seen_; // the clock at each look of this invocation
};

uint32_t Recorder::number_of(void* address) {
  const auto found =
      std::find_if(runtimes.begin(), runtimes.end(), [&](const Runtime& one) { return one.address == address; });
  if (found != runtimes.end()) {
    return static_cast<uint32_t>(found - runtimes.begin());
  }
  Runtime added;
  added.address = address;
  runtimes.push_back(added);
  return static_cast<uint32_t>(runtimes.size() - 1);
}

void Recorder::begin(void* address) {
  invoked_ = address;
  seen_.clear();
}

void Recorder::look(timespec* now) {
  // Only here is it known to be profiled: while loading, XNNPACK invokes runtimes of its own to fold constants.
  if (seen_.empty()) {
    runtime_ = number_of(invoked_);
    pretending_ = counting_looks && !runtimes[runtime_].known;
  }
  const size_t number = seen_.size();
  seen_.push_back(to_ns(*now));
  const std::vector<uint32_t>& op_after = runtimes[runtime_].op_after;
  const uint32_t op = number < op_after.size() ? op_after[number] : BackendClock::kNone;
  set_moment(static_cast<uint32_t>(kept.size()), op);
  if (pretending_) {
    now->tv_sec = static_cast<time_t>(number / kMicrosecondsInSecond);
    now->tv_nsec = static_cast<long>(number % kMicrosecondsInSecond * 1000);
  }
}

void Recorder::learn(Runtime& runtime, const uint64_t* told, size_t operators) {
  const size_t after_start = seen_.size() - 1;
  std::vector<uint32_t> looks(operators, 1);
  uint64_t total = operators;
  if (pretending_) {
    total = 0;
    for (size_t i = 0; i < operators; ++i) {
      looks[i] = static_cast<uint32_t>(std::min<uint64_t>(told[i], UINT32_MAX));
      total += looks[i];
    }
  }
  if (total != after_start || std::find(looks.begin(), looks.end(), 0u) != looks.end()) {
    problem = pretending_ ? "this XNNPACK does not read the clock once after each of an operator's parts"
                          : "some operators have several parts, and only a warm-up execution tells which";
    return;
  }
  for (size_t i = 0; i < operators; ++i) {
    runtime.op_after.insert(runtime.op_after.end(), looks[i], static_cast<uint32_t>(i));
  }
  runtime.looks = std::move(looks);
  runtime.known = true;
}

void Recorder::told_timing(void* address, const uint64_t* told, size_t operators) {
  if (address != invoked_ || seen_.empty() || !problem.empty()) {
    return;
  }
  Runtime& runtime = runtimes[runtime_];
  if (!runtime.known) {
    learn(runtime, told, operators);
  }
  if (!problem.empty()) {
    return;
  }
  if (seen_.size() != runtime.op_after.size() + 1) {
    problem = "an invocation of the XNNPACK backend read the clock more or less often than others";
    return;
  }
  kept.push_back({runtime_, times.size()});
  times.push_back(seen_.front());
  size_t look = 0;
  for (const uint32_t looks : runtime.looks) {
    look += looks;
    times.push_back(seen_[look]);
  }
  invoked_ = nullptr;
}

namespace {

Recorder* recorder = nullptr; // of the one BackendClock there is
thread_local bool invoking = false;

int read_clock(clockid_t id, timespec* now) {
  const int status = clock_gettime(id, now);
  if (invoking && status == 0 && id == CLOCK_MONOTONIC) {
    recorder->look(now);
  }
  return status;
}

int invoke_runtime(void* runtime) {
  if (invoking) {
    return recorder->real_invoke(runtime); // a part of the one that is recorded
  }
  recorder->begin(runtime);
  invoking = true;
  const int status = recorder->real_invoke(runtime);
  invoking = false;
  moment.store(UINT64_MAX, std::memory_order_relaxed);
  return status;
}

int profiling_info(void* runtime, int what, size_t size, void* value, size_t* needed) {
  const int status = recorder->real_info(runtime, what, size, value, needed);
  if (status == 0 && what == kOperatorTiming) {
    recorder->told_timing(runtime, static_cast<const uint64_t*>(value), size / sizeof(uint64_t));
  }
  return status;
}

template <class Function>
void* address_of(Function function) {
  return reinterpret_cast<void*>(function);
}

void* hook_of(const char* symbol) {
  if (std::strcmp(symbol, kClock) == 0) {
    return address_of(&read_clock);
  }
  if (std::strcmp(symbol, kInvoke) == 0) {
    return address_of(&invoke_runtime);
  }
  return std::strcmp(symbol, kInfo) == 0 ? address_of(&profiling_info) : nullptr;
}

// What CLOCK_MONOTONIC showed when the clock of the dump was at 0. The dump's is read between two looks at the
// other, and the narrowest of some tries is taken.
int64_t origin_of_dump_ns() {
  constexpr int kTries = 64;
  int64_t narrowest = INT64_MAX;
  int64_t origin = 0;
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = monotonic_ns();
    const auto ticks = static_cast<int64_t>(et_pal_current_ticks());
    const int64_t width = monotonic_ns() - before;
    if (width < narrowest) {
      narrowest = width;
      origin = before + width / 2 - ticks;
    }
  }
  return origin;
}

template <class Number>
void append(std::string& bytes, Number number) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

} // namespace

BackendClock::BackendClock(void* handle) {
  const auto ratio = et_pal_ticks_to_ns_multiplier();
  if (recorder != nullptr || ratio.numerator != ratio.denominator) {
    unavailable_ = recorder ? "they are being recorded already" : "ExecuTorch's clock does not count nanoseconds";
    return;
  }
  const std::vector<CallSlot> slots =
      find_call_slots(handle, [](const char* symbol) { return hook_of(symbol) != nullptr; }, unavailable_);
  if (!unavailable_.empty()) {
    return;
  }
  for (const char* symbol : {kClock, kInvoke, kInfo}) {
    const auto is_it = [&](const CallSlot& slot) { return std::strcmp(slot.symbol, symbol) == 0; };
    if (std::none_of(slots.begin(), slots.end(), is_it)) {
      unavailable_ = std::string("this XNNPACK backend does not call ") + symbol + " where it can be seen";
      return;
    }
  }
  recorder_ = std::make_unique<Recorder>();
  recorder_->real_invoke = reinterpret_cast<Invoke>(dlsym(handle, kInvoke));
  recorder_->real_info = reinterpret_cast<ProfilingInfo>(dlsym(handle, kInfo));
  if (recorder_->real_invoke == nullptr || recorder_->real_info == nullptr) {
    unavailable_ = "the loader does not find the functions of the XNNPACK backend";
    return;
  }
  recorder = recorder_.get();
  for (const CallSlot& slot : slots) {
    if (!patches_.point(slot, hook_of(slot.symbol))) {
      patches_.undo();
      recorder = nullptr;
      unavailable_ = "the call slots of the XNNPACK backend cannot be written";
      return;
    }
  }
}

BackendClock::~BackendClock() {
  patches_.undo();
  if (recorder == recorder_.get()) {
    recorder = nullptr;
  }
}

const std::string& BackendClock::unavailable() const {
  return unavailable_.empty() && recorder_ ? recorder_->problem : unavailable_;
}

void BackendClock::begin_measuring() {
  if (recorder_) {
    recorder_->counting_looks = false;
    recorder_->kept.clear();
    recorder_->times.clear();
  }
}

BackendClock::Moment BackendClock::now() {
  const uint64_t both = moment.load(std::memory_order_relaxed);
  return {static_cast<uint32_t>(both >> 32), static_cast<uint32_t>(both)};
}

uint32_t BackendClock::invocation_count() const {
  return recorder_ ? static_cast<uint32_t>(recorder_->kept.size()) : 0;
}

BackendClock::Invocation BackendClock::invocation(uint32_t number) const {
  const Kept& one = recorder_->kept.at(number);
  const auto start = recorder_->times.begin() + static_cast<std::ptrdiff_t>(one.first);
  const auto operators = static_cast<std::ptrdiff_t>(recorder_->runtimes[one.runtime].looks.size());
  return {one.runtime, *start, std::vector<int64_t>(start + 1, start + 1 + operators)};
}

std::vector<uint32_t> BackendClock::operators_of_runtimes() const {
  std::vector<uint32_t> counts;
  if (recorder_) {
    for (const Runtime& runtime : recorder_->runtimes) {
      counts.push_back(static_cast<uint32_t>(runtime.looks.size()));
    }
  }
  return counts;
}

std::string BackendClock::file() const {
  const std::vector<uint32_t> operators = operators_of_runtimes();
  std::string bytes(kMagic, sizeof(kMagic) - 1);
  append(bytes, kVersion);
  append(bytes, static_cast<uint32_t>(operators.size()));
  append(bytes, static_cast<uint64_t>(invocation_count()));
  for (const uint32_t count : operators) {
    append(bytes, count);
  }
  for (size_t i = 0; i < operators.size(); ++i) {
    for (const uint32_t looks : recorder_->runtimes[i].looks) {
      append(bytes, looks);
    }
  }
  if (recorder_) {
    for (const Kept& one : recorder_->kept) {
      append(bytes, one.runtime);
    }
  }
  bytes.resize((bytes.size() + 7) / 8 * 8); // times are aligned
  if (recorder_) {
    const int64_t origin = origin_of_dump_ns();
    for (const int64_t time : recorder_->times) {
      append(bytes, time - origin);
    }
  }
  return bytes;
}

} // namespace sme2prof
