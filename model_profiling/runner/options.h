// The runner's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sme2prof {

// Of the input with this number among all inputs of the method.
struct InputSizes {
  size_t input;
  std::vector<int32_t> sizes;
};

// One value fills the whole tensor.
struct InputValues {
  size_t input;
  std::vector<double> values;
};

// Planned memory that a method keeps from one execution to the next.
struct StateRange {
  size_t buffer; // a planned buffer, the first is 0
  size_t offset;
  size_t size;
};

struct Options {
  std::string model;
  std::string method = "forward";
  std::vector<std::string> inputs; // raw files, one per tensor input
  std::vector<InputSizes> sizes; // of inputs whose length may vary
  std::vector<InputValues> values; // of inputs that are not made up
  std::vector<StateRange> state; // put back to its first content before each execution
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
  std::vector<std::string> libraries; // with operators of their own, opened in this order after the backend
  double time_limit_s = 0; // none when 0
  bool count_kernels = false;
  bool cold = false; // load from the disk, not from the page cache; later also from a file of packed weights
  bool memory_rate = false; // measure it after everything else
  bool features_only = false;
  std::string sample; // where to write what threads were seen doing
  uint32_t sample_hz = 1000;
};

// Several programs that take turns, each in a process of its own.
struct LockstepOptions {
  uint64_t cycles = 0;
  uint32_t turn_length = 4; // executions in a turn
  uint64_t order_seed = 0;
  double time_limit_s = 0; // none when 0
  std::string result;
  std::vector<Options> children;
};

Options parse_options(const std::vector<std::string>& words);

bool asks_for_lockstep(const std::vector<std::string>& words);
LockstepOptions parse_lockstep_options(const std::vector<std::string>& words);

} // namespace sme2prof
