// Counts calls of KleidiAI kernels by pointing the backend's PLT slots at small counting thunks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sme2prof {

class KernelCounts {
 public:
  // Patches the library that `handle` (from dlopen) names. On a platform where that cannot be done,
  // `unavailable()` says why and nothing is changed.
  explicit KernelCounts(void* handle);

  const std::string& unavailable() const {
    return unavailable_;
  }
  // Calls so far, kernels never called left out.
  std::map<std::string, uint64_t> snapshot() const;
  void reset();

 private:
  std::string unavailable_;
  std::map<std::string, uint64_t*> counters_;
};

} // namespace sme2prof
