// One program in one process: the backend opened, the method loaded and warmed up, then executed on request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "measured.h"
#include "options.h"

namespace sme2prof {

// Opens the backend, then these libraries: what a session does before it loads a method.
void open_all(const std::vector<std::string>& libraries);

class Session {
 public:
  // CPU features must be masked before: the backend asks for them once, when it is opened.
  // `watch_outputs` keeps what the very first execution put out, for first_outputs().
  explicit Session(const Options& options, bool watch_outputs = false);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The measured executions made by this call are the last `count` of measured().executions.
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
  struct Parts; // ExecuTorch's

  Execution execute_once();
  int64_t watch_no_more(); // returns the time of the first execution, if there was one

  const Options& options_;
  const bool watch_outputs_;
  Measured measured_;
  std::optional<std::vector<OutputFacts>> first_outputs_;
  std::unique_ptr<Parts> parts_;
};

} // namespace sme2prof
