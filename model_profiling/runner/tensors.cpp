#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include "failure.h"
#include "output_file.h"

namespace sme2prof {

using executorch::aten::BFloat16;
using executorch::aten::Half;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Method;
using executorch::runtime::MethodMeta;
using executorch::runtime::Result;
using executorch::runtime::Tag;

namespace {

// SplitMix64: the same numbers on every machine, so host and emulated runs see the same input.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // In [-1, 1).
  double symmetric() {
    return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0;
  }

 private:
  uint64_t state_;
};

template <typename T, typename Make>
void fill_with(std::vector<uint8_t>& bytes, Make make) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T value = make();
    std::memcpy(&bytes[at], &value, sizeof(T));
  }
}

template <typename T>
void fill_real(std::vector<uint8_t>& bytes, bool ones, Random& random) {
  fill_with<T>(bytes, [&] { return static_cast<T>(ones ? 1.0f : static_cast<float>(random.symmetric())); });
}

// Wide integers are mostly indices, so they stay small enough for any table; bytes are data and use all values.
template <typename T>
void fill_integer(std::vector<uint8_t>& bytes, bool ones, Random& random) {
  fill_with<T>(bytes, [&]() -> T {
    return static_cast<T>(ones ? 1 : sizeof(T) == 1 ? random.next() : random.next() % 10);
  });
}

void fill(InputBuffer& input, bool ones, uint64_t seed) {
  Random random(seed);
  switch (input.type) {
    case ScalarType::Float:
      return fill_real<float>(input.bytes, ones, random);
    case ScalarType::Double:
      return fill_real<double>(input.bytes, ones, random);
    case ScalarType::Half:
      return fill_real<Half>(input.bytes, ones, random);
    case ScalarType::BFloat16:
      return fill_real<BFloat16>(input.bytes, ones, random);
    case ScalarType::Byte:
      return fill_integer<uint8_t>(input.bytes, ones, random);
    case ScalarType::Char:
      return fill_integer<int8_t>(input.bytes, ones, random);
    case ScalarType::Short:
      return fill_integer<int16_t>(input.bytes, ones, random);
    case ScalarType::Int:
      return fill_integer<int32_t>(input.bytes, ones, random);
    case ScalarType::Long:
      return fill_integer<int64_t>(input.bytes, ones, random);
    case ScalarType::Bool:
      return fill_with<uint8_t>(
          input.bytes, [&] { return static_cast<uint8_t>(ones ? 1 : random.next() & 1); });
    default:
      throw Stop(
          Failure::kInput,
          "input " + std::to_string(input.index) + " is " + type_name(input.type) +
              ", which cannot be made up; give a file");
  }
}

void set_values(InputBuffer& input, const std::vector<double>& values) {
  const size_t count = input.bytes.size() / executorch::runtime::elementSize(input.type);
  if (values.size() != 1 && values.size() != count) {
    throw Stop(
        Failure::kInput,
        "input " + std::to_string(input.index) + " has " + std::to_string(count) + " values, but " +
            std::to_string(values.size()) + " were given");
  }
  size_t at = 0;
  const auto next = [&] { return values[values.size() == 1 ? 0 : at++]; };
  switch (input.type) {
    case ScalarType::Float:
      return fill_with<float>(input.bytes, [&] { return static_cast<float>(next()); });
    case ScalarType::Double:
      return fill_with<double>(input.bytes, next);
    case ScalarType::Half:
      return fill_with<Half>(input.bytes, [&] { return static_cast<Half>(static_cast<float>(next())); });
    case ScalarType::Int:
      return fill_with<int32_t>(input.bytes, [&] { return static_cast<int32_t>(next()); });
    case ScalarType::Long:
      return fill_with<int64_t>(input.bytes, [&] { return static_cast<int64_t>(next()); });
    case ScalarType::Bool:
      return fill_with<uint8_t>(input.bytes, [&] { return static_cast<uint8_t>(next() != 0); });
    default:
      throw Stop(
          Failure::kInput,
          "input " + std::to_string(input.index) + " is " + type_name(input.type) +
              ", whose values cannot be given as numbers; give a file");
  }
}

// Gives `input` the sizes that were asked for, if any; a size may only shrink.
void resize(InputBuffer& input, const Options& options) {
  for (const InputSizes& asked : options.sizes) {
    if (asked.input != input.index) {
      continue;
    }
    const bool fits = asked.sizes.size() == input.sizes.size() &&
        std::equal(asked.sizes.begin(), asked.sizes.end(), input.sizes.begin(), std::less_equal<>());
    if (!fits) {
      throw Stop(
          Failure::kInput, "input " + std::to_string(input.index) + " cannot have the sizes that were asked for");
    }
    input.sizes = asked.sizes;
  }
}

void read_file(InputBuffer& input, const std::string& path) {
  const size_t needed = input.bytes.size();
  std::ifstream stream(path, std::ios::binary);
  std::vector<uint8_t> bytes(needed + 1); // one more than fits, to see that a file is too long
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!stream.is_open() || stream.bad()) {
    throw Stop(Failure::kInput, "cannot read input file " + path);
  }
  const auto count = static_cast<size_t>(stream.gcount());
  if (count != needed) {
    const std::string has = count > needed ? "more than " + std::to_string(needed) : std::to_string(count);
    throw Stop(
        Failure::kInput,
        "input file " + path + " has " + has + " bytes; input " + std::to_string(input.index) + " (" +
            type_name(input.type) + ") needs " + std::to_string(needed));
  }
  bytes.resize(needed);
  input.bytes = std::move(bytes);
}

std::string checksum(const uint8_t* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  }
  char text[24];
  std::snprintf(text, sizeof(text), "fnv1a:%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// Copied out one by one: a damaged memory plan may place a tensor anywhere.
template <typename T>
void count_odd(const uint8_t* data, OutputFacts& facts) {
  for (size_t at = 0; at + sizeof(T) <= facts.bytes; at += sizeof(T)) {
    T item;
    std::memcpy(&item, data + at, sizeof(T));
    const double value = static_cast<double>(item);
    facts.nan_count += std::isnan(value);
    facts.inf_count += std::isinf(value);
  }
}

// The index of an input or output is outside the program. A list is an error too, of another kind.
bool leads_nowhere(const Result<Tag>& tag) {
  return tag.error() == Error::InvalidProgram;
}

// ExecuTorch's own function multiplies 32-bit strides without looking whether they fit.
std::vector<int32_t> strides_of(const InputBuffer& input) {
  const size_t dims = input.sizes.size();
  std::vector<int32_t> strides(dims, 0);
  bool sound = input.dim_order.size() == dims;
  int64_t stride = 1;
  for (size_t i = dims; sound && i-- > 0;) {
    const size_t dim = input.dim_order[i];
    sound = dim < dims && strides[dim] == 0 && stride <= INT32_MAX;
    if (sound) {
      strides[dim] = static_cast<int32_t>(stride);
      stride *= std::max(input.sizes[dim], 1);
    }
  }
  if (!sound) {
    throw Stop(Failure::kProgram, "the layout of input " + std::to_string(input.index) + " is damaged");
  }
  return strides;
}

// Values are made and read in the order of the dimensions; a program may take them in another, as images with
// channels last.
void lay_out(InputBuffer& input) {
  const size_t size = executorch::runtime::elementSize(input.type);
  std::vector<uint8_t> laid(input.bytes.size());
  std::vector<int32_t> at(input.sizes.size(), 0);
  for (size_t from = 0; from + size <= laid.size(); from += size) {
    size_t to = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) {
      to += size * static_cast<size_t>(at[dim]) * static_cast<size_t>(input.strides[dim]);
    }
    if (to + size <= laid.size()) { // a damaged plan may have less memory than its sizes need
      std::memcpy(&laid[to], &input.bytes[from], size);
    }
    for (size_t dim = at.size(); dim-- > 0 && ++at[dim] == input.sizes[dim];) {
      at[dim] = 0;
    }
  }
  input.bytes = std::move(laid);
}

} // namespace

std::string type_name(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Half:
      return "float16";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Short:
      return "int16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Bool:
      return "bool";
    default:
      return executorch::runtime::toString(type);
  }
}

std::vector<InputBuffer> make_inputs(const MethodMeta& meta, const Options& options) {
  std::vector<InputBuffer> inputs;
  for (size_t i = 0; i < meta.num_inputs(); ++i) {
    const auto tag = meta.input_tag(i);
    if (leads_nowhere(tag)) {
      throw Stop(Failure::kProgram, "the description of input " + std::to_string(i) + " is damaged");
    }
    if (!tag.ok() || *tag != Tag::Tensor) {
      continue;
    }
    const auto info = meta.input_tensor_meta(i);
    if (!info.ok()) {
      throw Stop(Failure::kProgram, "the description of input " + std::to_string(i) + " is damaged");
    }
    InputBuffer input{i, info->scalar_type(), {}, {}, {}, {}};
    input.sizes.assign(info->sizes().begin(), info->sizes().end());
    input.dim_order.assign(info->dim_order().begin(), info->dim_order().end());
    resize(input, options);
    input.strides = strides_of(input);
    size_t bytes = executorch::runtime::elementSize(input.type);
    for (const int32_t size : input.sizes) {
      bytes *= static_cast<size_t>(size);
    }
    input.bytes.resize(std::min(bytes, info->nbytes()));
    if (options.inputs.empty()) {
      fill(input, options.fill == "ones", options.seed + i);
    } else if (inputs.size() < options.inputs.size()) {
      read_file(input, options.inputs[inputs.size()]);
    }
    for (const InputValues& given : options.values) {
      if (given.input == i) {
        set_values(input, given.values);
      }
    }
    if (!std::is_sorted(input.dim_order.begin(), input.dim_order.end())) {
      lay_out(input);
    }
    inputs.push_back(std::move(input));
  }
  if (!options.inputs.empty() && options.inputs.size() != inputs.size()) {
    throw Stop(
        Failure::kInput,
        "the method has " + std::to_string(inputs.size()) + " tensor inputs, but " +
            std::to_string(options.inputs.size()) + " input files were given");
  }
  return inputs;
}

void set_inputs(Method& method, std::vector<InputBuffer>& inputs) {
  for (InputBuffer& input : inputs) {
    TensorImpl impl(
        input.type,
        static_cast<ssize_t>(input.sizes.size()),
        input.sizes.data(),
        input.bytes.data(),
        input.dim_order.data(),
        input.strides.data());
    const Error error = method.set_input(EValue(Tensor(&impl)), input.index);
    if (error != Error::Ok) {
      throw Stop(
          Failure::kInput,
          "input " + std::to_string(input.index) + " was refused: " + executorch::runtime::to_string(error));
    }
  }
}

std::vector<OutputFacts> collect_outputs(Method& method, const std::string& prefix) {
  std::vector<OutputFacts> outputs;
  const MethodMeta meta = method.method_meta();
  for (size_t i = 0; i < method.outputs_size(); ++i) {
    if (leads_nowhere(meta.output_tag(i))) { // get_output would end the process
      throw Stop(Failure::kProgram, "the description of output " + std::to_string(i) + " is damaged");
    }
    const EValue& value = method.get_output(i);
    if (!value.isTensor()) {
      continue;
    }
    const Tensor tensor = value.toTensor();
    OutputFacts facts{};
    facts.index = i;
    facts.type = type_name(tensor.scalar_type());
    facts.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    facts.dim_order.assign(tensor.dim_order().begin(), tensor.dim_order().end());
    facts.bytes = tensor.nbytes();
    const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
    if (data == nullptr && facts.bytes > 0) {
      throw Stop(Failure::kExecute, "output " + std::to_string(i) + " was given no memory by the program");
    }
    facts.checksum = checksum(data, facts.bytes);
    switch (tensor.scalar_type()) {
      case ScalarType::Float:
        count_odd<float>(data, facts);
        break;
      case ScalarType::Double:
        count_odd<double>(data, facts);
        break;
      case ScalarType::Half:
        count_odd<Half>(data, facts);
        break;
      case ScalarType::BFloat16:
        count_odd<BFloat16>(data, facts);
        break;
      default:
        break; // whole numbers are never NaN
    }
    if (!prefix.empty()) {
      facts.file = prefix + std::to_string(i) + ".bin";
      write_file(facts.file, data, facts.bytes);
    }
    outputs.push_back(std::move(facts));
  }
  return outputs;
}

} // namespace sme2prof
