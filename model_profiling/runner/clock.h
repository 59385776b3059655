// The runner's one clock: monotonic, and the same in every process of the machine.
#pragma once

#include <chrono>
#include <cstdint>

namespace sme2prof {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace sme2prof
