// Looks at moments drawn at random where each working thread of this process is.
//
// On Linux every thread has a timer that signals it; on macOS, which has no such timers, one thread stops the others
// for a moment. What is seen goes into memory that was there before, and is named by others afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace sme2prof {

class BackendClock;

class Sampler {
 public:
  // The threads to look at are those that exist now. Which operator they work for is what BackendClock says at that
  // moment. Where they cannot be looked at, what seen() gives says why.
  explicit Sampler(uint32_t hz);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Only what is seen between these two is kept. `invocations` is how many of the backend's are over.
  void begin_execution(uint32_t invocations);
  void end_execution();
  // Ends the looking. Everything that was seen, as JSON; `clock` is the one that knew the operators.
  std::string seen(const BackendClock& clock);

 private:
  struct Parts;

  void stop();

  bool stopped_ = false;
  uint32_t hz_;
  std::string unavailable_;
  std::unique_ptr<Parts> parts_;
};

} // namespace sme2prof
