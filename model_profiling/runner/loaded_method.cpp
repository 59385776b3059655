#include "loaded_method.h"

#include <cerrno>
#include <cstring>
#include <set>
#include <variant>

#include <executorch/runtime/kernel/operator_registry.h>

namespace sme2prof {

using executorch::etdump::ETDumpGen;
using executorch::extension::MmapDataLoader;
using executorch::runtime::Error;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::LoadBackendOptionsMap;
using executorch::runtime::MemoryManager;
using executorch::runtime::Method;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Span;

#if !defined(__APPLE__)
// A program keeps its data in a std::variant, which the libraries make and this file moves. They were built with
// libstdc++; with a libc++ whose index is four bytes wide, three of them are read from nowhere.
static_assert(
    sizeof(std::variant<char, bool>) == 2,
    "this C++ library lays std::variant out unlike ExecuTorch's; use libstdc++");
#endif

namespace {

// A delegate reports a failed allocation as an internal error; errno still knows, if it was clear before. Other
// errors have a cause of their own: under emulation errno can be left from a mapping that was then made elsewhere.
bool ran_out_of_memory(Error error) {
  switch (error) {
    case Error::MemoryAllocationFailed:
    case Error::DelegateMemoryAllocationFailed:
      return true;
    case Error::Internal:
    case Error::AccessFailed:
    case Error::OutOfResources:
      return errno == ENOMEM;
    default:
      return false;
  }
}

} // namespace

void stop_for(Failure kind, const std::string& what, Error error) {
  const bool memory = ran_out_of_memory(error);
  throw Stop(memory ? Failure::kMemory : kind, what + ": " + executorch::runtime::to_string(error));
}

LoadedMethod::LoadedMethod(
    const Options& options, ETDumpGen* tracer, CostWatch& watch, const LoadBackendOptionsMap* of_backends) {
  errno = 0;
  Result<MmapDataLoader> loader =
      MmapDataLoader::from(options.model.c_str(), MmapDataLoader::MlockConfig::NoMlock);
  if (!loader.ok()) {
    stop_for(Failure::kProgram, "cannot open " + options.model, loader.error());
  }
  loader_ = std::make_unique<MmapDataLoader>(std::move(*loader));
  watched_ = std::make_unique<WatchedLoader>(*loader_, watch);
  watch.begin("verify");
  Result<Program> program = Program::load(watched_.get(), Program::Verification::InternalConsistency);
  if (!program.ok()) {
    stop_for(Failure::kProgram, options.model + " is not a usable program", program.error());
  }
  program_ = std::make_unique<Program>(std::move(*program));
  Result<MethodMeta> meta = program_->method_meta(options.method.c_str());
  if (!meta.ok()) {
    throw Stop(Failure::kInput, "the program has no method '" + options.method + "'; it has " + method_names());
  }
  watch.begin("plan");
  plan_memory(*meta);
  watch.begin("initialize");
  Result<Method> method =
      program_->load_method(options.method.c_str(), manager_.get(), tracer, nullptr, of_backends);
  if (!method.ok()) {
    stop_for(Failure::kLoad, "cannot load method '" + options.method + "'", method.error());
  }
  method_ = std::make_unique<Method>(std::move(*method));
  keep_state(options.state);
}

void LoadedMethod::keep_state(const std::vector<StateRange>& ranges) {
  for (const StateRange& range : ranges) {
    const size_t length = range.buffer < spans_.size() ? spans_[range.buffer].size() : 0;
    if (range.offset > length || range.size > length - range.offset) {
      throw Stop(Failure::kUsage, "--state names memory that the method does not have");
    }
    uint8_t* at = spans_[range.buffer].data() + range.offset;
    state_.push_back({at, {at, at + range.size}});
  }
}

void LoadedMethod::reset_state() {
  for (const Kept& kept : state_) {
    std::memcpy(kept.at, kept.first.data(), kept.first.size());
  }
}

std::vector<std::string> registered_operators() {
  std::set<std::string> names;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    names.insert(kernel.name_);
  }
  return {names.begin(), names.end()};
}

std::string LoadedMethod::method_names() const {
  std::string names;
  for (size_t i = 0; i < program_->num_methods(); ++i) {
    const auto name = program_->get_method_name(i);
    names += (i ? ", " : "") + std::string(name.ok() ? *name : "?");
  }
  return names.empty() ? "none" : names;
}

void LoadedMethod::plan_memory(const MethodMeta& meta) {
  for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
    const Result<int64_t> planned = meta.memory_planned_buffer_size(i);
    if (!planned.ok() || *planned < 0) {
      throw Stop(Failure::kProgram, "the size of memory buffer " + std::to_string(i) + " is damaged");
    }
    const auto size = static_cast<size_t>(*planned);
    buffers_.push_back(std::make_unique<uint8_t[]>(size));
    spans_.push_back({buffers_.back().get(), size});
  }
  planned_ = std::make_unique<HierarchicalAllocator>(Span<Span<uint8_t>>(spans_.data(), spans_.size()));
  manager_ = std::make_unique<MemoryManager>(&method_allocator_, planned_.get(), &temp_allocator_);
}

} // namespace sme2prof
