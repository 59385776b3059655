// A method of a program, loaded, with everything it points into.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/program.h>

#include "costs.h"
#include "failure.h"
#include "options.h"

namespace sme2prof {

// `errno` was cleared before what failed.
[[noreturn]] void stop_for(Failure kind, const std::string& what, executorch::runtime::Error error);

// The names of the operators that methods can call outside delegates, sorted.
std::vector<std::string> registered_operators();

class LoadedMethod {
 public:
  LoadedMethod(
      const Options& options,
      executorch::etdump::ETDumpGen* tracer,
      CostWatch& watch,
      const executorch::runtime::LoadBackendOptionsMap* of_backends = nullptr);

  // Its parts point at each other.
  LoadedMethod(const LoadedMethod&) = delete;
  LoadedMethod& operator=(const LoadedMethod&) = delete;

  executorch::runtime::Method& method() {
    return *method_;
  }

  // Puts the state that the options name back to its content right after loading.
  void reset_state();

 private:
  std::string method_names() const;
  void plan_memory(const executorch::runtime::MethodMeta& meta);
  void keep_state(const std::vector<StateRange>& ranges);

  std::unique_ptr<executorch::extension::MmapDataLoader> loader_;
  std::unique_ptr<WatchedLoader> watched_;
  std::unique_ptr<executorch::runtime::Program> program_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<executorch::runtime::Span<uint8_t>> spans_;
  struct Kept {
    uint8_t* at;
    std::vector<uint8_t> first;
  };
  std::vector<Kept> state_;
  executorch::extension::MallocMemoryAllocator method_allocator_;
  executorch::extension::MallocMemoryAllocator temp_allocator_;
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> planned_;
  std::unique_ptr<executorch::runtime::MemoryManager> manager_;
  std::unique_ptr<executorch::runtime::Method> method_;
};

} // namespace sme2prof
