// The runner's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sme2prof {

struct Options {
  std::string model;
  std::string method = "forward";
  std::vector<std::string> inputs; // raw files, one per tensor input
  std::string fill = "random"; // random | ones, when no files are given
  uint64_t seed = 0;
  std::string output_prefix; // each output goes to <prefix>N.bin
  std::string etdump;
  std::string result; // the JSON; standard output when empty
  uint32_t threads = 1;
  uint32_t warmup = 1;
  uint32_t executions = 1;
  std::vector<std::string> disable; // cpuinfo flags to clear
  double time_limit_s = 0; // none when 0
  bool count_kernels = false;
  bool features_only = false;
};

Options parse_options(int argc, char** argv);

} // namespace sme2prof
