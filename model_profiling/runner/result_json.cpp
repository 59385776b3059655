#include "result_json.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <sys/resource.h>

#include "failure.h"
#include "memory_rate.h"
#include "output_file.h"
#include "weights_cache.h"

namespace sme2prof {

// Defined where the runner is linked (build.py): what is compiled is shared by runners.
extern const char* const kBuildId;

namespace {

// VmHWM where there is one: on Linux ru_maxrss also counts what the process was before exec.
int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) {
      return std::atoll(line.c_str() + 6) * 1024;
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
  return usage.ru_maxrss;
#else
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
#endif
}

std::string output_json(const OutputFacts& output) {
  return json::Object()
      .add("index", std::to_string(output.index))
      .add("dtype", json::text(output.type))
      .add("shape", json::numbers(output.sizes))
      .add("dim_order", json::numbers(output.dim_order))
      .add("bytes", std::to_string(output.bytes))
      .add("checksum", json::text(output.checksum))
      .add("nan", std::to_string(output.nan_count))
      .add("inf", std::to_string(output.inf_count))
      .add("file", json::text_or_null(output.file))
      .str();
}

std::string column(const std::vector<Execution>& executions, int64_t Execution::* field) {
  return json::array(executions, [field](const Execution& each) { return std::to_string(each.*field); });
}

std::string cached_json(const CachedLoading& cached) {
  return json::Object()
      .add("without_ns", std::to_string(cached.without_ns))
      .add("with_ns", std::to_string(cached.with_ns))
      .add("file_bytes", std::to_string(cached.file_bytes))
      .str();
}

std::string costs_json(const Costs& costs, const std::optional<CachedLoading>& cached) {
  return json::Object()
      .add("stage_ns", json::object(costs.stage_ns))
      .add("memory_bytes", json::object(costs.memory_bytes))
      .add("peak_stage", json::text(costs.peak_stage))
      .add("load_minor_faults", std::to_string(costs.load_minor_faults))
      .add("load_major_faults", std::to_string(costs.load_major_faults))
      .add("first_minor_faults", std::to_string(costs.first_minor_faults))
      .add("cached_share", costs.cached_share < 0 ? "null" : std::to_string(costs.cached_share))
      .add("cached_loading", cached ? cached_json(*cached) : "null")
      .str();
}

std::string sizes_json(const std::map<std::string, std::vector<WorkSize>>& kernels) {
  json::Object object;
  for (const auto& [kernel, sizes] : kernels) {
    object.add(kernel, json::array(sizes, [](const WorkSize& size) {
      return json::numbers(std::vector<uint64_t>{size.first, size.second, size.third, size.calls});
    }));
  }
  return object.str();
}

} // namespace

json::Object common_json(const CpuFeatures& features) {
  json::Object object;
  object.add("schema_version", "1")
      .add("executorch", json::text(SME2PROF_EXECUTORCH_VERSION))
      .add("build_id", json::text(kBuildId))
      .add("flags_present", json::texts(features.present))
      .add("flags_masked", json::texts(features.masked))
      .add("layout_verified", json::boolean(features.layout_verified))
      .add("features_note", json::text_or_null(features.note));
  return object;
}

std::string result_json(
    const Options& options, const CpuFeatures& features, const Measured& measured, bool in_turns) {
  json::Object object = common_json(features);
  const bool counted = options.count_kernels && measured.kernels_note.empty();
  object.add("model", json::text(options.model))
      .add("method", json::text(options.method))
      .add("threads", std::to_string(measured.threads))
      .add("warmup", std::to_string(options.warmup))
      .add("load_ns", std::to_string(measured.load_ns))
      .add("first_ns", std::to_string(measured.first_ns))
      .add("loop_ns", std::to_string(measured.loop_ns))
      .add("iterations_ns", column(measured.executions, &Execution::wall_ns))
      .add("traced", json::boolean(!options.etdump.empty() || !options.sample.empty()))
      .add("peak_memory_bytes", std::to_string(peak_memory_bytes()))
      .add("outputs", json::array(measured.outputs, output_json))
      .add("kernels", counted ? json::object(measured.kernels) : "{}")
      .add("kernel_sizes", counted ? sizes_json(measured.kernel_sizes) : "{}")
      .add("kernels_note", json::text_or_null(measured.kernels_note))
      .add(
          "boundaries_unavailable",
          options.boundaries.empty() ? json::text("not asked for")
                                     : json::text_or_null(measured.boundaries_unavailable));
  if (!in_turns) { // a launch tells these turn by turn
    object.add("cpu_ns", column(measured.executions, &Execution::cpu_ns))
        .add("preemptions", column(measured.executions, &Execution::preemptions));
  }
  // Last: what these need themselves must not count as memory of the program.
  const auto cached = options.cold ? load_from_weights_cache(options) : std::nullopt;
  object.add("costs", costs_json(measured.costs, cached));
  if (options.memory_rate) {
    object.add("memory_read_rate", std::to_string(memory_read_rate(measured.threads)));
  }
  return object.str();
}

void publish(const std::string& path, const std::string& document) {
  const std::string line = document + "\n";
  if (!path.empty()) {
    write_file(path, line.data(), line.size());
  } else if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fflush(stdout) != 0) {
    throw Stop(Failure::kOutput, "cannot write the result to standard output");
  }
}

} // namespace sme2prof
