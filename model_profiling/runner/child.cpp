#include "child.h"

#include <cstdlib>
#include <numeric>

#include <executorch/runtime/platform/runtime.h>

#include "clock.h"
#include "cpu_features.h"
#include "failure.h"
#include "json.h"
#include "process_use.h"
#include "result_json.h"
#include "session.h"

namespace sme2prof {
namespace {

// The turns of one session, with what they cost. Between turns the process is to use no CPU time, and what it
// used all the same is kept.
class Turns {
  static constexpr int64_t kNoticeable = 50; // a wait of 2% of the turn

 public:
  Turns(Session& session, uint32_t length) : session_(session), length_(length) {
    settle();
  }

  // The numbers of a Word::kTimes.
  std::vector<int64_t> take() {
    idle_cpu_ns_ += process_cpu_ns() - settled_cpu_ns_;
    const int64_t waited = waited_for_core_ns();
    const int64_t cpu_before = process_cpu_ns();
    const int64_t started = now_ns();
    session_.execute(length_);
    const int64_t cpu = current_cpu();
    used_cpu_ns_ += process_cpu_ns() - cpu_before;
    const IdleWait wait = settle();
    const int64_t waited_now = waited < 0 ? 0 : waited_for_core_ns() - waited;
    waited_ns_ = waited < 0 ? -1 : waited_ns_ + waited_now;
    std::vector<int64_t> numbers(kTurnNumbers);
    numbers[kStartedNs] = started;
    numbers[kCpu] = cpu;
    numbers[kIdleWaitNs] = wait.waited_ns;
    numbers[kIdleWaitExceeded] = wait.exceeded ? 1 : 0;
    const std::vector<Execution>& all = session_.measured().executions;
    const auto first = all.end() - length_;
    // A worker that waits for a core through whole executions is preempted in none of them.
    const int64_t took = std::accumulate(
        first, all.end(), int64_t{0}, [](int64_t sum, const Execution& each) { return sum + each.wall_ns; });
    const int64_t lacked = session_.measured().threads > 1 && kNoticeable * waited_now > took ? 1 : 0;
    for (auto each = first; each != all.end(); ++each) {
      numbers.insert(numbers.end(), {each->wall_ns, each->cpu_ns, each->preemptions + lacked});
    }
    return numbers;
  }

  std::string usage_json() const {
    return json::Object()
        .add("cpu_ns", std::to_string(used_cpu_ns_))
        .add("idle_cpu_ns", std::to_string(idle_cpu_ns_))
        .add("waited_ns", waited_ns_ < 0 ? "null" : std::to_string(waited_ns_))
        .str();
  }

 private:
  IdleWait settle() {
    const IdleWait wait = session_.measured().threads > 1 ? wait_for_other_threads() : IdleWait{};
    settled_cpu_ns_ = process_cpu_ns();
    return wait;
  }

  Session& session_;
  const uint32_t length_;
  int64_t used_cpu_ns_ = 0;
  int64_t settled_cpu_ns_ = 0;
  int64_t idle_cpu_ns_ = 0;
  int64_t waited_ns_ = 0; // for a core, during turns and until the threads were idle
};

std::string shapes_of(const std::vector<OutputFacts>& outputs) {
  std::string text;
  for (const OutputFacts& output : outputs) {
    text += (text.empty() ? "" : ", ") + output.type + json::numbers(output.sizes);
  }
  return text.empty() ? "nothing" : text;
}

void check_outputs(const Session& session) {
  const auto& first = session.first_outputs();
  const std::vector<OutputFacts>& last = session.measured().outputs;
  for (size_t i = 0; first && i < last.size(); ++i) {
    if (i >= first->size() || (*first)[i].checksum != last[i].checksum) {
      throw Stop(
          Failure::kDisagree,
          "output " + std::to_string(last[i].index) + " of the last execution is not what the first one put out");
    }
  }
}

// The heap begins where the parent's was when it forked, which for one place among the children is the same in
// every launch: to the byte within a page, and that is worth up to half a percent of a program's time. So that
// each launch deals anew, everything a child allocates is moved by what it takes first and never gives back.
void move_heap(uint64_t layout) {
  constexpr uint64_t kStep = 16;
  constexpr uint64_t kSteps = 4096;
  [[maybe_unused]] static void* volatile kept = nullptr;
  kept = std::malloc(kStep * (1 + layout % kSteps));
}

void serve(const Options& options, uint32_t turn_length, uint64_t layout, Channel& channel) {
  if (!channel.receive()) {
    return;
  }
  move_heap(layout);
  executorch::runtime::runtime_init();
  const CpuFeatures features = mask_cpu_features(options.disable);
  Session session(options, true);
  Turns turns(session, turn_length);
  channel.send(Word::kReady);
  while (const auto message = channel.receive()) {
    if (message->word == Word::kTurn) {
      channel.send(Word::kTimes, pack(turns.take()));
      continue;
    }
    session.finish();
    check_outputs(session);
    channel.send(Word::kOutputs, shapes_of(session.measured().outputs));
    channel.send(Word::kUsage, turns.usage_json());
    channel.send(Word::kResult, result_json(options, features, session.measured(), true));
  }
}

} // namespace

int serve_turns(const Options& options, uint32_t turn_length, uint64_t layout, Channel channel) {
  try {
    serve(options, turn_length, layout, channel);
    return 0;
  } catch (...) {
    const Stop stop = current_stop();
    channel.send(Word::kFailed, std::to_string(static_cast<int>(stop.kind())) + " " + stop.what());
    return static_cast<int>(stop.kind());
  }
}

} // namespace sme2prof
