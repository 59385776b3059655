#include "lockstep.h"

#include <cstdint>
#include <map>
#include <vector>

#include "children.h"
#include "clock.h"
#include "failure.h"
#include "json.h"
#include "machine.h"
#include "turn_order.h"

namespace sme2prof {
namespace {

struct TurnLog {
  std::vector<size_t> child;
  std::vector<int64_t> started_ns;
  std::vector<int64_t> cpu;
  std::vector<int64_t> idle_wait_ns; // after the turn, until the child's threads were idle
  // By turn, then by execution.
  std::vector<std::vector<int64_t>> iterations_ns;
  std::vector<std::vector<int64_t>> cpu_ns;
  std::vector<std::vector<int64_t>> preemptions;
  uint64_t idle_waits_exceeded = 0;
};

struct Told {
  std::string outputs;
  std::string usage;
  std::string result;
};

int64_t after(double seconds) {
  return seconds > 0 ? now_ns() + static_cast<int64_t>(seconds * 1e9) : kNoDeadline;
}

void take_turn(Children& children, size_t index, uint32_t length, TurnLog& log) {
  const std::string doing = "executing";
  children.tell(index, Word::kTurn, doing);
  const std::vector<int64_t> numbers = unpack(children.answer(index, Word::kTimes, doing));
  if (numbers.size() != kTurnNumbers + 3 * length) {
    throw Stop(
        Failure::kDisagree,
        children.name(index) + ": reports " + std::to_string(numbers.size()) + " numbers for a turn of " +
            std::to_string(length));
  }
  log.child.push_back(index);
  log.started_ns.push_back(numbers[kStartedNs]);
  log.cpu.push_back(numbers[kCpu]);
  log.idle_wait_ns.push_back(numbers[kIdleWaitNs]);
  log.idle_waits_exceeded += numbers[kIdleWaitExceeded] != 0 ? 1 : 0;
  std::vector<std::vector<int64_t>>* const columns[] = {&log.iterations_ns, &log.cpu_ns, &log.preemptions};
  for (size_t column = 0; column < 3; ++column) {
    std::vector<int64_t>& turn = columns[column]->emplace_back();
    for (size_t i = kTurnNumbers + column; i < numbers.size(); i += 3) {
      turn.push_back(numbers[i]);
    }
  }
}

TurnLog take_turns(Children& children, const LockstepOptions& options, TurnOrder& order) {
  TurnLog log;
  for (uint64_t cycle = 0; cycle < options.cycles; ++cycle) {
    for (const size_t index : order.next()) {
      take_turn(children, index, options.turn_length, log);
    }
  }
  return log;
}

Told hear(Children& children, size_t index) {
  const std::string doing = "writing its results";
  children.tell(index, Word::kFinish, doing);
  Told told;
  told.outputs = children.answer(index, Word::kOutputs, doing);
  told.usage = children.answer(index, Word::kUsage, doing);
  told.result = children.answer(index, Word::kResult, doing);
  return told;
}

// Children of one method put out tensors of one kind, whatever is switched off.
void check_outputs(const LockstepOptions& options, const Children& children, const std::vector<Told>& told) {
  std::map<std::string, size_t> first_of;
  for (size_t i = 0; i < told.size(); ++i) {
    const std::string method = options.children[i].model + '\n' + options.children[i].method;
    const size_t first = first_of.emplace(method, i).first->second;
    if (told[i].outputs != told[first].outputs) {
      throw Stop(
          Failure::kDisagree,
          children.name(i) + ": puts out " + told[i].outputs + ", but " + children.name(first) + " " +
              told[first].outputs);
    }
  }
}

std::string turns_json(const TurnLog& log) {
  return json::Object()
      .add("child", json::numbers(log.child))
      .add("started_ns", json::numbers(log.started_ns))
      .add("cpu", json::array(log.cpu, [](int64_t cpu) { return cpu < 0 ? "null" : std::to_string(cpu); }))
      .add("idle_wait_ns", json::numbers(log.idle_wait_ns))
      .add("iterations_ns", json::array(log.iterations_ns, json::numbers<int64_t>))
      .add("cpu_ns", json::array(log.cpu_ns, json::numbers<int64_t>))
      .add("preemptions", json::array(log.preemptions, json::numbers<int64_t>))
      .str();
}

} // namespace

std::string run_lockstep(const LockstepOptions& options) {
  Children children(options, after(options.time_limit_s));
  TurnOrder order(options.order_seed, children.size());
  const std::vector<size_t> start_order = order.next();
  for (const size_t index : start_order) {
    const std::string doing = "loading and warming up";
    children.tell(index, Word::kStart, doing);
    children.answer(index, Word::kReady, doing);
  }
  const std::string before = machine_json();
  const TurnLog log = take_turns(children, options, order);
  const std::string afterwards = machine_json();
  std::vector<Told> told;
  for (size_t i = 0; i < children.size(); ++i) {
    told.push_back(hear(children, i));
  }
  check_outputs(options, children, told);
  children.dismiss();

  const std::string lockstep = json::Object()
                                   .add("turn_length", std::to_string(options.turn_length))
                                   .add("cycles", std::to_string(options.cycles))
                                   .add("order_seed", std::to_string(options.order_seed))
                                   .add("start_order", json::numbers(start_order))
                                   .add("idle_wait_exceeded", std::to_string(log.idle_waits_exceeded))
                                   .str();
  const std::string machine =
      json::Object()
          .add("before", before)
          .add("after", afterwards)
          .add("children", json::array(told, [](const Told& child) { return child.usage; }))
          .str();
  return json::Object()
      .add("schema_version", "1")
      .add("lockstep", lockstep)
      .add("children", json::array(told, [](const Told& child) { return child.result; }))
      .add("turns", turns_json(log))
      .add("machine", machine)
      .str();
}

} // namespace sme2prof
