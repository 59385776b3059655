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
  std::string boundaries; // of the operators in the dump; only with one
  std::string result; // the JSON; standard output when empty
  uint32_t threads = 1;
  uint32_t warmup = 1;
  uint32_t executions = 1;
  std::vector<std::string> disable; // cpuinfo flags to clear
  double time_limit_s = 0; // none when 0
  bool count_kernels = false;
  bool features_only = false;
};

// Several programs that take turns, each in a process of its own.
struct LockstepOptions {
  uint64_t cycles = 0; // none: until the budget is spent
  uint32_t turn_length = 4; // executions in a turn
  uint64_t order_seed = 0;
  double budget_s = 0; // none when 0
  double time_limit_s = 0; // none when 0
  std::string result;
  std::vector<Options> children;
};

Options parse_options(const std::vector<std::string>& words);

bool asks_for_lockstep(const std::vector<std::string>& words);
LockstepOptions parse_lockstep_options(const std::vector<std::string>& words);

} // namespace sme2prof
