// Inputs made or read in the tensor's own type, and outputs summed up and written raw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <executorch/runtime/executor/method.h>

#include "measured.h"
#include "options.h"

namespace sme2prof {

struct InputBuffer {
  size_t index; // among the method's inputs; those that are not tensors keep their exported value
  executorch::aten::ScalarType type;
  std::vector<int32_t> sizes;
  std::vector<uint8_t> dim_order;
  std::vector<int32_t> strides;
  std::vector<uint8_t> bytes;
};

std::string type_name(executorch::aten::ScalarType type);

std::vector<InputBuffer> make_inputs(const executorch::runtime::MethodMeta& meta, const Options& options);

// A plan may reuse an input's memory once it was read, so inputs are set again before every execution.
void set_inputs(executorch::runtime::Method& method, std::vector<InputBuffer>& inputs);

std::vector<OutputFacts> collect_outputs(executorch::runtime::Method& method, const std::string& prefix);

} // namespace sme2prof
