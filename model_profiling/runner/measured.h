// What a run saw. It needs no header of ExecuTorch, so that what only tells it on compiles quickly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernel_counts.h"

namespace sme2prof {

struct OutputFacts {
  size_t index;
  std::string type;
  std::vector<int64_t> sizes;
  std::vector<int64_t> dim_order;
  size_t bytes;
  std::string checksum; // FNV-1a, 64 bits, of the raw bytes
  uint64_t nan_count;
  uint64_t inf_count;
  std::string file; // empty when not written
};

// One execution: its time, the calling thread's share of it in CPU time, and how often others took a core from it.
struct Execution {
  int64_t wall_ns = 0;
  int64_t cpu_ns = 0;
  int64_t preemptions = 0;
};

// What a program costs until its first answer.
struct Costs {
  std::map<std::string, int64_t> stage_ns;
  std::map<std::string, int64_t> memory_bytes; // by stage: what it added; empty where the system does not say
  std::string peak_stage; // the memory is that right after it
  int64_t load_minor_faults = 0;
  int64_t load_major_faults = 0; // pages that were read from the disk
  int64_t first_minor_faults = 0;
  double cached_share = -1; // of the program, in the page cache when it was opened; -1: not asked for, or not known
};

struct Measured {
  int64_t load_ns = 0;
  int64_t first_ns = 0;
  int64_t loop_ns = 0; // all measured executions with the setting of their inputs
  std::vector<Execution> executions;
  size_t threads = 0;
  std::vector<OutputFacts> outputs;
  std::map<std::string, uint64_t> kernels;
  std::map<std::string, std::vector<WorkSize>> kernel_sizes;
  std::string kernels_note; // why they were not counted; empty if they were, or were not to be
  std::string boundaries_unavailable;
  Costs costs;
};

} // namespace sme2prof
