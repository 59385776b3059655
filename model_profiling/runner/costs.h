// What a program costs before it answers: the time of each stage of loading and of the first execution, and what
// the process's memory was for when it had most.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <executorch/runtime/core/data_loader.h>

#include "measured.h"
#include "plt_slots.h"

namespace sme2prof {

// The stages follow each other, or are inside another, whose own cost is then without theirs. Looking at memory takes
// time of its own, which no stage has.
class CostWatch {
 public:
  // Begins the stage "read". Patches the library that `backend` (from dlopen) names, so that XNNPACK's work is a stage
  // of its own. There can
  // be one at a time. `cold` asks the system first to forget what it has read of the program.
  CostWatch(void* backend, const std::string& model, bool cold);
  ~CostWatch();
  CostWatch(const CostWatch&) = delete;
  CostWatch& operator=(const CostWatch&) = delete;

  void begin(const std::string& stage);
  // These return the time of their stages.
  int64_t end_load();
  int64_t end_first_execution(); // nothing is watched any more

  const Costs& costs() const {
    return costs_;
  }

  // For the length of its life another stage.
  class Inside {
   public:
    Inside(CostWatch& watch, const std::string& stage) : watch_(watch), outer_(watch.stage_) {
      watch_.begin(stage);
    }
    ~Inside() {
      watch_.begin(outer_);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    CostWatch& watch_;
    const std::string outer_;
  };

 private:
  void settle();
  int64_t total_ns() const;

  Costs costs_;
  const std::string model_;
  std::string stage_ = "runner"; // all that the process has before it opens the program
  int64_t since_ns_ = 0;
  int64_t own_bytes_ = 0; // at the last look
  int64_t most_bytes_ = 0;
  std::map<std::string, int64_t> added_bytes_;
  SlotPatches patches_;
};

// Loads parts of a program as `inner` does. What will be read as a whole is read at once, in a stage of its own.
class WatchedLoader final : public executorch::runtime::DataLoader {
 public:
  WatchedLoader(const executorch::runtime::DataLoader& inner, CostWatch& watch) : inner_(inner), watch_(watch) {}

  executorch::runtime::Result<executorch::runtime::FreeableBuffer>
  load(size_t offset, size_t size, const SegmentInfo& segment) const override;
  executorch::runtime::Error
  load_into(size_t offset, size_t size, const SegmentInfo& segment, void* buffer) const override {
    return inner_.load_into(offset, size, segment, buffer);
  }
  executorch::runtime::Result<size_t> size() const override {
    return inner_.size();
  }

 private:
  const executorch::runtime::DataLoader& inner_;
  CostWatch& watch_;
};

} // namespace sme2prof
