#include "session.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <dlfcn.h>

#include <executorch/devtools/etdump/etdump_flatcc.h>

#include "backend_clock.h"
#include "clock.h"
#include "costs.h"
#include "failure.h"
#include "kernel_counts.h"
#include "loaded_method.h"
#include "output_file.h"
#include "process_use.h"
#include "sampler.h"
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
using executorch::runtime::Error;

#if defined(__APPLE__)
constexpr char kXnnpackLibrary[] = "@rpath/libexecutorch_backend_xnnpack.dylib";
#else
constexpr char kXnnpackLibrary[] = "libexecutorch_backend_xnnpack.so";
#endif

// Never closed: the runtime keeps pointers to what it registers.
void* open_backend() {
  void* backend = dlopen(kXnnpackLibrary, RTLD_LAZY | RTLD_GLOBAL);
  if (backend == nullptr) {
    throw Stop(Failure::kBackend, std::string("cannot open the XNNPACK backend: ") + dlerror());
  }
  return backend;
}

// Never closed, like the backend. Opened after it: they may need it, and CPU features must be masked before.
void open_libraries(const std::vector<std::string>& libraries) {
  for (const std::string& path : libraries) {
    if (dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      throw Stop(Failure::kBackend, std::string("cannot open the library: ") + dlerror());
    }
  }
}

size_t set_threads(uint32_t count) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr || !pool->_unsafe_reset_threadpool(count)) {
    throw Stop(Failure::kLoad, "the thread pool cannot be set to " + std::to_string(count) + " threads");
  }
  return pool->get_thread_count();
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

} // namespace

void open_all(const std::vector<std::string>& libraries) {
  open_backend();
  open_libraries(libraries);
}

struct Session::Parts {
  std::unique_ptr<KernelCounts> counts;
  std::unique_ptr<BackendClock> clock;
  std::unique_ptr<ETDumpGen> tracer;
  std::unique_ptr<CostWatch> watch; // until the first execution has ended
  std::unique_ptr<LoadedMethod> loaded;
  std::vector<InputBuffer> inputs;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<ThreadsApart> apart;
};

Session::~Session() = default;

Session::Session(const Options& options, bool watch_outputs)
    : options_(options), watch_outputs_(watch_outputs), parts_(std::make_unique<Parts>()) {
  void* backend = open_backend();
  open_libraries(options.libraries);
  if (options.count_kernels) {
    parts_->counts = std::make_unique<KernelCounts>(backend);
    measured_.kernels_note = parts_->counts->unavailable();
  }
  if (!options.boundaries.empty() || !options.sample.empty()) {
    parts_->clock = std::make_unique<BackendClock>(backend);
  }
  measured_.threads = set_threads(options.threads);
  // XNNPACK tells its operators apart only when it is traced.
  if (!options.etdump.empty() || !options.sample.empty()) {
    parts_->tracer = std::make_unique<ETDumpGen>();
  }
  parts_->watch = std::make_unique<CostWatch>(backend, options.model, options.cold);
  parts_->loaded = std::make_unique<LoadedMethod>(options, parts_->tracer.get(), *parts_->watch);
  measured_.load_ns = parts_->watch->end_load();
  parts_->inputs = make_inputs(parts_->loaded->method().method_meta(), options);
  if (options.warmup == 0) {
    watch_no_more(); // looking takes time of its own: a measured execution is not watched
  }
  for (uint32_t i = 0; i < options.warmup; ++i) {
    const int64_t ns = execute_once().wall_ns;
    measured_.first_ns = i == 0 ? ns : measured_.first_ns;
  }
  // Now: the first execution is what makes the threads of the pool. A sampler is a thread more.
  if (options.sample.empty()) {
    parts_->apart = std::make_unique<ThreadsApart>(measured_.threads);
    if (!options.count_kernels) { // which is never timed, and under an emulator takes minutes
      go_first(measured_.threads);
    }
  }
  // The trace, its boundaries and the counts are of the measured executions alone.
  if (parts_->tracer) {
    parts_->tracer->reset();
  }
  if (parts_->clock) {
    parts_->clock->begin_measuring();
  }
  if (parts_->counts) {
    parts_->counts->reset();
  }
  if (!options.sample.empty()) {
    parts_->sampler = std::make_unique<Sampler>(options.sample_hz);
  }
}

int64_t Session::watch_no_more() {
  const int64_t first_ns = parts_->watch->end_first_execution();
  measured_.costs = parts_->watch->costs();
  parts_->watch.reset();
  return first_ns;
}

Execution Session::execute_once() {
  set_inputs(parts_->loaded->method(), parts_->inputs);
  parts_->loaded->reset_state();
  errno = 0;
  if (parts_->sampler) {
    parts_->sampler->begin_execution(parts_->clock->invocation_count());
  }
  if (parts_->watch) {
    parts_->watch->begin("execute");
  }
  const int64_t cpu_began = thread_cpu_ns();
  const int64_t began = now_ns();
  const Error error = parts_->loaded->method().execute();
  int64_t wall_ns = now_ns() - began;
  const int64_t cpu_ended = thread_cpu_ns();
  if (parts_->sampler) {
    parts_->sampler->end_execution();
  }
  if (parts_->watch) {
    wall_ns = watch_no_more();
  }
  if (error != Error::Ok) {
    stop_for(Failure::kExecute, "the method failed while running", error);
  }
  if (watch_outputs_ && !first_outputs_) {
    first_outputs_ = collect_outputs(parts_->loaded->method(), "");
  }
  return {wall_ns, cpu_ended - cpu_began, 0};
}

void Session::execute(uint32_t count) {
  std::vector<Execution>& taken = measured_.executions;
  if (taken.capacity() - taken.size() < count) {
    taken.reserve(taken.size() + std::max<size_t>(count, taken.size()));
  }
  const int64_t began = now_ns();
  int64_t before = preemptions(measured_.threads);
  for (uint32_t i = 0; i < count; ++i) {
    taken.push_back(execute_once());
    const int64_t now = preemptions(measured_.threads);
    taken.back().preemptions = now - before;
    before = now;
    if (parts_->tracer && options_.etdump.empty()) {
      parts_->tracer->reset(); // nobody keeps the trace: it must not grow
    }
  }
  measured_.loop_ns += now_ns() - began;
}

void Session::finish() {
  parts_->apart.reset(); // threads of later work inherit what the first thread may use
  if (options_.warmup == 0) {
    measured_.first_ns = measured_.executions.front().wall_ns;
  }
  if (parts_->counts) {
    measured_.kernels = parts_->counts->snapshot();
    measured_.kernel_sizes = parts_->counts->sizes();
  }
  if (parts_->sampler) {
    const std::string seen = parts_->sampler->seen(*parts_->clock) + "\n";
    parts_->sampler.reset();
    write_file(options_.sample, seen.data(), seen.size());
  }
  measured_.outputs = collect_outputs(parts_->loaded->method(), options_.output_prefix);
  if (parts_->tracer && !options_.etdump.empty()) {
    save_etdump(*parts_->tracer, options_.etdump);
  }
  if (!options_.boundaries.empty()) {
    measured_.boundaries_unavailable = parts_->clock->unavailable();
    if (measured_.boundaries_unavailable.empty()) {
      const std::string boundaries = parts_->clock->file();
      write_file(options_.boundaries, boundaries.data(), boundaries.size());
    }
  }
}

} // namespace sme2prof
