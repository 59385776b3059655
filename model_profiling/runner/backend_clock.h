// When each operator of a traced program really began and ended, from the XNNPACK backend's own clock calls.
//
// XNNPACK reads the clock when an invocation begins and after each operator, and tells whole microseconds only.
// Its calls go through slots that can be pointed elsewhere (plt_slots.h): this reads the clock for it and keeps the
// nanoseconds. XNNPACK reads the clock only where a tracer is attached when the method is loaded.
//
// To use it: make one after the backend is opened and before the method is loaded; execute at least one warm-up
// (see `begin_measuring`); call begin_measuring(); execute; then take file(). A signal handler, in any thread,
// asks BackendClock::now() where the backend is. Nothing else of it may be called from a handler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plt_slots.h"

namespace sme2prof {

class Recorder;

class BackendClock {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // What the backend is doing at this moment.
  struct Moment {
    uint32_t invocation = kNone; // of a delegate, counted from 0 since begin_measuring(); kNone: in none
    uint32_t op = kNone; // which of its operators, in the order of its trace; kNone: in none, or not known
  };

  // One invocation of a delegate: operator i lasted from ends_ns[i - 1], or from start_ns, to ends_ns[i]. Times are
  // those of CLOCK_MONOTONIC.
  struct Invocation {
    uint32_t runtime; // which delegate, numbered as they were first invoked
    int64_t start_ns;
    std::vector<int64_t> ends_ns;
  };

  // Patches the library that `handle` (from dlopen) names; it must stay open. Where that cannot be done,
  // unavailable() says why and nothing is changed. There can be one at a time.
  explicit BackendClock(void* handle);
  // Points the slots back. Nothing of the backend may be running.
  ~BackendClock();
  BackendClock(const BackendClock&) = delete;
  BackendClock& operator=(const BackendClock&) = delete;

  // Why there are no boundaries; empty where there are. It can become so while the method is executed.
  const std::string& unavailable() const;

  // Forgets what was recorded so far. Before it, the first invocation of each delegate is shown a clock that goes one
  // microsecond forward at each look: what XNNPACK then says an operator took is how often it looked, because an
  // operator may be several for XNNPACK (a concatenation is a copy for each input). The trace of executions before
  // this is therefore not to be kept. A delegate first seen later is trusted to look once for each operator, or
  // there are no boundaries.
  void begin_measuring();

  // Safe in a signal handler.
  static Moment now();

  // The invocations since begin_measuring(), in order.
  uint32_t invocation_count() const;
  Invocation invocation(uint32_t number) const;
  // How many operators of the trace each delegate has.
  std::vector<uint32_t> operators_of_runtimes() const;

  // The content of a boundaries file (docs/reference/etdump.md), in the clock of the dump.
  std::string file() const;

 private:
  std::string unavailable_;
  std::unique_ptr<Recorder> recorder_; // nothing where unavailable_ says why
  SlotPatches patches_;
};

} // namespace sme2prof
