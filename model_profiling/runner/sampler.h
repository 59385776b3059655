// Looks at moments drawn at random where each working thread of this process is.
//
// On Linux every thread has a timer that signals it; on macOS, which has no such timers, one thread stops the others
// for a moment. What is seen goes into memory that was there before, and is named by others afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace sme2prof {

// What the backend is doing, as far as that is known: which of its calls in this execution, which operator of it.
struct RunningPlace {
  int32_t call = -1;
  int32_t op = -1;
};

class Sampler {
 public:
  // `running` is asked inside signal handlers and must be fit for that; `unknown_operators` says why it knows
  // nothing, or is empty. The threads to look at are those that exist now. Where they cannot be looked at,
  // `unavailable()` says why and nothing is changed.
  Sampler(uint32_t hz, RunningPlace (*running)(), std::string unknown_operators);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  const std::string& unavailable() const {
    return unavailable_;
  }
  // Only what is seen between these two is kept.
  void begin_execution();
  void end_execution();
  // Ends it; then everything that was seen, as JSON.
  std::string stop();

 private:
  struct Parts;

  uint32_t hz_;
  std::string unknown_operators_;
  std::string unavailable_;
  std::unique_ptr<Parts> parts_;
};

} // namespace sme2prof
