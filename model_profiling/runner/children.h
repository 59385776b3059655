// The processes of a lockstep launch as their parent sees them: forked, spoken to, missed when they end, reaped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "channel.h"
#include "options.h"

namespace sme2prof {

class Children {
 public:
  // Forks one process for each of `options.children`; a child never returns from here. It must be called while
  // nothing was masked, opened or started that one of them should not have. At `deadline` (of now_ns) every
  // wait ends the launch.
  Children(const LockstepOptions& options, int64_t deadline);
  // Kills and reaps those that are left.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  size_t size() const {
    return all_.size();
  }
  // "child 0 (model.pte)": how every message names it.
  const std::string& name(size_t index) const {
    return all_[index].name;
  }
  void tell(size_t index, Word word, const std::string& doing);
  // What child `index` answers, which must be a `word`. Any child that ends, fails or speaks unasked meanwhile
  // stops the launch.
  std::string answer(size_t index, Word word, const std::string& doing);
  // Lets them go and waits for their end, which must be a good one.
  void dismiss();

 private:
  struct Child {
    std::string name;
    pid_t pid;
    Channel channel;
    bool reaped = false;
  };

  [[noreturn]] void stop_for(size_t index, const Message& unasked);
  // For a child that does not answer any more.
  [[noreturn]] void lost(size_t index, const std::string& doing);
  [[noreturn]] void ended(size_t index, std::optional<int> status);
  // The wait status of a child that is about to end; nothing when it did not and had to be killed.
  std::optional<int> reap(Child& child);

  const int64_t deadline_;
  std::vector<Child> all_;
};

} // namespace sme2prof
