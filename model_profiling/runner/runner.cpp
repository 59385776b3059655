// Runs one method of an ExecuTorch program: masks CPU features, opens the XNNPACK backend, warms up, measures,
// and writes what it saw as one JSON document.

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <variant>

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include "cpu_features.h"
#include "failure.h"
#include "json.h"
#include "kernel_counts.h"
#include "options.h"
#include "output_file.h"
#include "tensors.h"

// The wheel exports these but ships no header for them.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
} // namespace executorch::extension::threadpool

namespace sme2prof {
namespace {

using executorch::etdump::ETDumpGen;
using executorch::extension::MallocMemoryAllocator;
using executorch::extension::MmapDataLoader;
using executorch::runtime::Error;
using executorch::runtime::HierarchicalAllocator;
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

#if defined(__APPLE__)
constexpr char kXnnpackLibrary[] = "@rpath/libexecutorch_backend_xnnpack.dylib";
#else
constexpr char kXnnpackLibrary[] = "libexecutorch_backend_xnnpack.so";
#endif

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

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void at_time_limit(int) {
  static const char message[] = "sme2prof-runner: time limit reached\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof(message) - 1);
  _exit(static_cast<int>(Failure::kTimeLimit));
}

void arm_time_limit(double seconds) {
  if (seconds <= 0) {
    return;
  }
  std::signal(SIGALRM, at_time_limit);
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(seconds);
  timer.it_value.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(timer.it_value.tv_sec)) * 1e6);
  if (timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0) {
    timer.it_value.tv_usec = 1; // zero would mean no limit
  }
  if (setitimer(ITIMER_REAL, &timer, nullptr) != 0) {
    throw Stop(Failure::kUsage, "this system refuses the time limit");
  }
}

size_t set_threads(uint32_t count) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr || !pool->_unsafe_reset_threadpool(count)) {
    throw Stop(Failure::kLoad, "the thread pool cannot be set to " + std::to_string(count) + " threads");
  }
  return pool->get_thread_count();
}

// A delegate reports a failed allocation as an internal error; errno still knows, if it was clear before.
[[noreturn]] void stop_for(Failure kind, const std::string& what, Error error) {
  const bool memory = errno == ENOMEM || error == Error::MemoryAllocationFailed ||
      error == Error::DelegateMemoryAllocationFailed;
  throw Stop(memory ? Failure::kMemory : kind, what + ": " + executorch::runtime::to_string(error));
}

// Keeps alive everything a loaded method points into.
class LoadedMethod {
 public:
  // Its parts point at each other.
  LoadedMethod(const LoadedMethod&) = delete;
  LoadedMethod& operator=(const LoadedMethod&) = delete;

  LoadedMethod(const Options& options, ETDumpGen* tracer) {
    errno = 0;
    Result<MmapDataLoader> loader = MmapDataLoader::from(
        options.model.c_str(), MmapDataLoader::MlockConfig::NoMlock);
    if (!loader.ok()) {
      stop_for(Failure::kProgram, "cannot open " + options.model, loader.error());
    }
    loader_ = std::make_unique<MmapDataLoader>(std::move(*loader));
    Result<Program> program = Program::load(loader_.get(), Program::Verification::InternalConsistency);
    if (!program.ok()) {
      stop_for(Failure::kProgram, options.model + " is not a usable program", program.error());
    }
    program_ = std::make_unique<Program>(std::move(*program));
    Result<MethodMeta> meta = program_->method_meta(options.method.c_str());
    if (!meta.ok()) {
      throw Stop(Failure::kInput, "the program has no method '" + options.method + "'; it has " + method_names());
    }
    plan_memory(*meta);
    Result<Method> method = program_->load_method(options.method.c_str(), manager_.get(), tracer);
    if (!method.ok()) {
      stop_for(Failure::kLoad, "cannot load method '" + options.method + "'", method.error());
    }
    method_ = std::make_unique<Method>(std::move(*method));
  }

  Method& method() {
    return *method_;
  }

 private:
  std::string method_names() const {
    std::string names;
    for (size_t i = 0; i < program_->num_methods(); ++i) {
      const auto name = program_->get_method_name(i);
      names += (i ? ", " : "") + std::string(name.ok() ? *name : "?");
    }
    return names.empty() ? "none" : names;
  }

  void plan_memory(const MethodMeta& meta) {
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

  std::unique_ptr<MmapDataLoader> loader_;
  std::unique_ptr<Program> program_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<Span<uint8_t>> spans_;
  MallocMemoryAllocator method_allocator_;
  MallocMemoryAllocator temp_allocator_;
  std::unique_ptr<HierarchicalAllocator> planned_;
  std::unique_ptr<MemoryManager> manager_;
  std::unique_ptr<Method> method_;
};

int64_t execute_once(Method& method, std::vector<InputBuffer>& inputs) {
  set_inputs(method, inputs);
  errno = 0;
  const int64_t began = now_ns();
  const Error error = method.execute();
  const int64_t ended = now_ns();
  if (error != Error::Ok) {
    stop_for(Failure::kExecute, "the method failed while running", error);
  }
  return ended - began;
}

struct Free {
  void operator()(void* memory) const {
    std::free(memory);
  }
};

void save_etdump(ETDumpGen& tracer, const std::string& path) {
  const executorch::etdump::ETDumpResult dump = tracer.get_etdump_data();
  const std::unique_ptr<void, Free> owner(dump.buf);
  if (dump.buf == nullptr || dump.size == 0) {
    throw Stop(Failure::kOutput, "the trace is empty or too large for one ETDump; use fewer executions");
  }
  write_file(path, dump.buf, dump.size);
}

Measured measure(const Options& options) {
  Measured measured;
  // Never closed: the runtime keeps pointers to what it registers.
  void* backend = dlopen(kXnnpackLibrary, RTLD_LAZY | RTLD_GLOBAL);
  if (backend == nullptr) {
    throw Stop(Failure::kBackend, std::string("cannot open the XNNPACK backend: ") + dlerror());
  }
  std::unique_ptr<KernelCounts> counts;
  if (options.count_kernels) {
    counts = std::make_unique<KernelCounts>(backend);
    measured.kernels_unavailable = counts->unavailable();
  }
  measured.threads = set_threads(options.threads);

  std::unique_ptr<ETDumpGen> tracer;
  if (!options.etdump.empty()) {
    tracer = std::make_unique<ETDumpGen>();
  }
  const int64_t began = now_ns();
  LoadedMethod loaded(options, tracer.get());
  measured.load_ns = now_ns() - began;
  Method& method = loaded.method();
  const MethodMeta meta = method.method_meta();
  for (size_t i = 0; i < meta.num_backends(); ++i) {
    const auto name = meta.get_backend_name(i);
    measured.backends.push_back(name.ok() ? *name : "?");
  }
  std::vector<InputBuffer> inputs = make_inputs(meta, options);

  if (counts) {
    measured.kernels_at_load = counts->snapshot();
  }
  for (uint32_t i = 0; i < options.warmup; ++i) {
    const int64_t ns = execute_once(method, inputs);
    measured.first_ns = i == 0 ? ns : measured.first_ns;
  }
  // The trace and the counts are of the measured executions alone.
  if (tracer) {
    tracer->reset();
  }
  if (counts) {
    counts->reset();
  }
  measured.iterations_ns.reserve(options.executions);
  const int64_t loop_began = now_ns();
  for (uint32_t i = 0; i < options.executions; ++i) {
    measured.iterations_ns.push_back(execute_once(method, inputs));
  }
  measured.loop_ns = now_ns() - loop_began;
  if (options.warmup == 0) {
    measured.first_ns = measured.iterations_ns.front();
  }
  if (counts) {
    measured.kernels = counts->snapshot();
  }
  measured.outputs = collect_outputs(method, options.output_prefix);
  if (tracer) {
    save_etdump(*tracer, options.etdump);
  }
  return measured;
}

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

json::Object common_json(const CpuFeatures& features) {
  json::Object object;
  object.add("schema_version", "1")
      .add("executorch", json::text(SME2PROF_EXECUTORCH_VERSION))
      .add("build_id", json::text(SME2PROF_BUILD_ID))
      .add("compiler", json::text(__VERSION__))
      .add("flags_present", json::texts(features.present))
      .add("flags_masked", json::texts(features.masked))
      .add("layout_verified", json::boolean(features.layout_verified))
      .add("features_note", json::text_or_null(features.note));
  return object;
}

std::string result_json(const Options& options, const CpuFeatures& features, const Measured& measured) {
  json::Object object = common_json(features);
  const bool counted = options.count_kernels && measured.kernels_unavailable.empty();
  object.add("model", json::text(options.model))
      .add("method", json::text(options.method))
      .add("threads", std::to_string(measured.threads))
      .add("warmup", std::to_string(options.warmup))
      .add("load_ns", std::to_string(measured.load_ns))
      .add("first_ns", std::to_string(measured.first_ns))
      .add("loop_ns", std::to_string(measured.loop_ns))
      .add("iterations_ns", json::numbers(measured.iterations_ns))
      .add("traced", json::boolean(!options.etdump.empty()))
      .add("peak_memory_bytes", std::to_string(peak_memory_bytes()))
      .add("backends", json::texts(measured.backends))
      .add("outputs", json::array(measured.outputs, output_json))
      .add("kernels", counted ? json::object(measured.kernels) : "null")
      .add("kernels_at_load", counted ? json::object(measured.kernels_at_load) : "null")
      .add(
          "kernels_unavailable",
          options.count_kernels ? json::text_or_null(measured.kernels_unavailable) : json::text("not asked for"));
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

void run(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  arm_time_limit(options.time_limit_s);
  executorch::runtime::runtime_init();
  const CpuFeatures features = mask_cpu_features(options.disable);
  const std::string document = options.features_only
      ? common_json(features).str()
      : result_json(options, features, measure(options));
  publish(options.result, document);
}

} // namespace
} // namespace sme2prof

int main(int argc, char** argv) {
  try {
    sme2prof::run(argc, argv);
    return 0;
  } catch (const sme2prof::Stop& stop) {
    std::fprintf(stderr, "sme2prof-runner: %s\n", stop.what());
    return static_cast<int>(stop.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "sme2prof-runner: out of memory\n");
    return static_cast<int>(sme2prof::Failure::kMemory);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "sme2prof-runner: unexpected error: %s\n", problem.what());
    return static_cast<int>(sme2prof::Failure::kInternal);
  }
}
