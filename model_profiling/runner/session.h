// One program in one process: the backend opened, the method loaded and warmed up, then executed on request.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <executorch/devtools/etdump/etdump_flatcc.h>

#include "kernel_counts.h"
#include "loaded_method.h"
#include "options.h"
#include "tensors.h"

namespace sme2prof {

struct Measured {
  int64_t load_ns = 0;
  int64_t first_ns = 0;
  int64_t loop_ns = 0; // all measured executions with the setting of their inputs
  std::vector<int64_t> iterations_ns;
  size_t threads = 0;
  std::vector<std::string> backends;
  std::vector<OutputFacts> outputs;
  std::map<std::string, uint64_t> kernels_at_load;
  std::map<std::string, uint64_t> kernels;
  std::string kernels_unavailable;
};

class Session {
 public:
  // CPU features must be masked before: the backend asks for them once, when it is opened.
  // `watch_outputs` keeps what the very first execution put out, for first_outputs().
  explicit Session(const Options& options, bool watch_outputs = false);

  // The measured executions made by this call are the last `count` of measured().iterations_ns.
  void execute(uint32_t count);
  // Collects what the last execution put out, and writes the files that the options ask for.
  void finish();

  const Measured& measured() const {
    return measured_;
  }
  const std::optional<std::vector<OutputFacts>>& first_outputs() const {
    return first_outputs_;
  }

 private:
  int64_t execute_once();

  const Options& options_;
  const bool watch_outputs_;
  Measured measured_;
  std::optional<std::vector<OutputFacts>> first_outputs_;
  std::unique_ptr<KernelCounts> counts_;
  std::unique_ptr<executorch::etdump::ETDumpGen> tracer_;
  std::unique_ptr<LoadedMethod> loaded_;
  std::vector<InputBuffer> inputs_;
};

} // namespace sme2prof
