// Which CPU features exist, and switching them off for XNNPACK by clearing cpuinfo's flags.
#pragma once

#include <string>
#include <vector>

namespace sme2prof {

struct CpuFeatures {
  std::vector<std::string> present; // by cpuinfo's flag names, as the operating system reports them
  std::vector<std::string> masked; // of those, the ones cleared
  bool layout_verified = false; // cpuinfo's private layout agrees with the operating system
  std::string note; // why not, or why there is nothing to mask
};

// Must run before the XNNPACK backend is opened: it asks cpuinfo once, when it loads.
CpuFeatures mask_cpu_features(const std::vector<std::string>& disable);

} // namespace sme2prof
