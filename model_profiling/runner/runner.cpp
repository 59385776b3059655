// Runs one method of an ExecuTorch program: masks CPU features, opens the XNNPACK backend, warms up, measures,
// and writes what it saw as one JSON document. With --lockstep it does that for several in turns.

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <sys/time.h>
#include <unistd.h>

#include <executorch/runtime/platform/runtime.h>

#include "cpu_features.h"
#include "failure.h"
#include "loaded_method.h"
#include "lockstep.h"
#include "options.h"
#include "result_json.h"
#include "session.h"

namespace sme2prof {
namespace {

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

void run(const Options& options) {
  arm_time_limit(options.time_limit_s);
  executorch::runtime::runtime_init();
  const CpuFeatures features = mask_cpu_features(options.disable);
  if (options.features_only) {
    if (!options.libraries.empty()) {
      open_all(options.libraries);
    }
    publish(options.result, common_json(features).add("operators", json::texts(registered_operators())).str());
    return;
  }
  Session session(options);
  session.execute(options.executions);
  session.finish();
  publish(options.result, result_json(options, features, session.measured()));
}

void run(const std::vector<std::string>& words) {
  if (asks_for_lockstep(words)) {
    const LockstepOptions options = parse_lockstep_options(words);
    publish(options.result, run_lockstep(options));
  } else {
    run(parse_options(words));
  }
}

} // namespace
} // namespace sme2prof

int main(int argc, char** argv) {
  try {
    sme2prof::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
    return 0;
  } catch (...) {
    const sme2prof::Stop stop = sme2prof::current_stop();
    std::fprintf(stderr, "sme2prof-runner: %s\n", stop.what());
    return static_cast<int>(stop.kind());
  }
}
