// A small executor_runner with the flags and the log lines of ExecuTorch's own, which takes a quarter of an hour
// to build from source. It runs real programs on the real runtime. A name that ends in the number of an earlier
// release (_1_0; _1_0_plain is built without the event tracer) makes it one of that release; _bare has no XNNPACK.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include <dlfcn.h>

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

using executorch::extension::Module;
using Clock = std::chrono::steady_clock;

static double ms_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"model_path", "model.pte"}, {"method_name", "forward"}, {"num_executions", "1"}, {"cpu_threads", "-1"},
      {"etdump_path", ""},         {"print_output", "all"},    {"inputs", ""},
  };
  const std::string called = argv[0];
  const bool old = called.find("_1_0") != std::string::npos;
  if (old) {
    flags.erase("print_output");
    flags.erase("method_name");
    flags["print_all_output"] = "false";
  }
  if (called.find("_plain") != std::string::npos) {
    flags.erase("etdump_path");
  }
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals).erase(0, 2);
    if (word.rfind("--", 0) != 0 || equals == std::string::npos || !flags.count(name)) {
      std::fprintf(stderr, "ERROR: unknown command line flag '%s'\n", name.c_str());
      return 1;
    }
    flags[name] = word.substr(equals + 1);
  }
  if (called.find("_bare") == std::string::npos) {
    dlopen("libexecutorch_backend_xnnpack.so", RTLD_NOW | RTLD_GLOBAL);
  }
  auto tracer = std::make_unique<executorch::etdump::ETDumpGen>();
  auto* dump = tracer.get();
  Module module(flags["model_path"], Module::LoadMode::Mmap, std::move(tracer));
  auto began = Clock::now();
  flags.emplace("method_name", "forward");
  if (module.load_method(flags["method_name"]) != executorch::runtime::Error::Ok) {
    std::fprintf(stderr, "F 00:00:00.1 executorch:executor_runner.cpp:600] Loading of method failed\n");
    return 134;
  }
  if (old) {
    std::fprintf(stderr, "I 00:00:00.1 executorch:executor_runner.cpp:286] Method loaded.\n");
  } else {
    std::fprintf(stderr, "I 00:00:00.1 executorch:executor_runner.cpp:629] Model loaded in %f ms.\n", ms_since(began));
  }
  const auto meta = module.method_meta(flags["method_name"]);
  const auto info = meta->input_tensor_meta(0);
  const auto input = executorch::extension::ones(
      {info->sizes().begin(), info->sizes().end()}, info->scalar_type());
  const std::vector<executorch::runtime::EValue> inputs = {input};
  const int count = std::stoi(flags["num_executions"]);
  double total = 0;
  for (int i = 1; i <= count; ++i) {
    began = Clock::now();
    if (!module.execute(flags["method_name"], inputs).ok()) {
      return 134;
    }
    const double took = ms_since(began);
    total += took;
    if (!old) {
      std::fprintf(
          stderr, "I 00:00:00.2 executorch:executor_runner.cpp:785] Iteration %d of %d: %f ms\n", i, count, took);
    }
  }
  std::fprintf(
      stderr, "I 00:00:00.3 executorch:executor_runner.cpp:342] Model executed successfully %d time(s) in %f ms.\n",
      count, total);
  if (!flags["etdump_path"].empty()) {
    const auto data = dump->get_etdump_data();
    std::ofstream(flags["etdump_path"], std::ios::binary)
        .write(static_cast<const char*>(data.buf), static_cast<std::streamsize>(data.size));
  }
  return 0;
}
