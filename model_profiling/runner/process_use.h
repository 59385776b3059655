// What this process costs the machine, and when it costs nothing any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sme2prof {

// All threads of this process together.
int64_t process_cpu_ns();

int64_t thread_cpu_ns();

// How often others took a core from this process so far: from its only thread, or from any of several.
int64_t preemptions(size_t threads);

// The CPU this thread is on; -1 where the system does not say.
int64_t current_cpu();

struct IdleWait {
  int64_t waited_ns = 0;
  bool exceeded = false; // another thread was still busy when the patience ended
};

// How long this process's threads were ready to run while others had the core, since they began; -1 where the
// system does not say. Of a thread that is waiting now, the kernel tells it only when the thread runs again.
int64_t waited_for_core_ns();

// While it lives, each of the `threads` of this process has a core of its own, if the process may use just as many
// cores and all are of one kind: on a busy machine the scheduler often leaves two threads on one core for a whole
// launch.
class ThreadsApart {
 public:
  explicit ThreadsApart(size_t threads);
  ~ThreadsApart();
  ThreadsApart(const ThreadsApart&) = delete;
  ThreadsApart& operator=(const ThreadsApart&) = delete;

 private:
  std::vector<int> cores_; // empty when nothing was changed
};

// Puts the only thread of this process before all ordinary work of the machine, where the system allows it (root on
// Linux): nobody takes its core then, and its caches stay warm. Several threads that wait for each other by spinning
// could block one another.
void go_first(size_t threads);

// Returns when no other thread of this process is busy: a thread pool's workers spin for a while after work.
IdleWait wait_for_other_threads();

} // namespace sme2prof
