// The one way the runner gives up: a kind that the kit turns into advice, and a sentence for people.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace sme2prof {

// Exit codes; model_profiling/targets/collect.py and docs/reference/runner.md hold the same table.
enum class Failure : int {
  kUsage = 2,
  kProgram = 3,
  kLoad = 4,
  kExecute = 5,
  kMask = 6,
  kInput = 7,
  kOutput = 8,
  kBackend = 9,
  kInternal = 10, // nobody foresaw it: a fault of the runner itself
  kChild = 11, // a process of a lockstep launch crashed or ended too early
  kMemory = 12,
  kDisagree = 13, // the processes of a lockstep launch cannot be compared
  kTimeLimit = 124,
};

class Stop : public std::runtime_error {
 public:
  Stop(Failure kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Failure kind() const {
    return kind_;
  }

 private:
  Failure kind_;
};

// Inside a catch block: what was caught, in this program's words.
inline Stop current_stop() {
  try {
    throw;
  } catch (const Stop& stop) {
    return stop;
  } catch (const std::bad_alloc&) {
    return Stop(Failure::kMemory, "out of memory");
  } catch (const std::exception& problem) {
    return Stop(Failure::kInternal, std::string("unexpected error: ") + problem.what());
  }
}

} // namespace sme2prof
