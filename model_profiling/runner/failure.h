// The one way the runner gives up: a kind that the kit turns into advice, and a sentence for people.
#pragma once

#include <stdexcept>
#include <string>

namespace sme2prof {

// Exit codes; model_profiling/targets/failures.py and docs/runner.md hold the same table.
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
  kMemory = 12,
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

} // namespace sme2prof
