#include "children.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "child.h"
#include "clock.h"
#include "failure.h"
#include "turn_order.h"

namespace sme2prof {
namespace {

constexpr int64_t kGraceNs = 60'000'000'000; // for a child that has nothing left to do but to end

std::string name_of(size_t index, const Options& options) {
  const size_t slash = options.model.rfind('/');
  const std::string file = slash == std::string::npos ? options.model : options.model.substr(slash + 1);
  return "child " + std::to_string(index) + " (" + file + ")";
}

std::string signal_name(int number) {
  static const struct {
    int number;
    const char* name;
  } kNames[] = {
      {SIGABRT, "SIGABRT"}, {SIGALRM, "SIGALRM"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGHUP, "SIGHUP"},   {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},   {SIGKILL, "SIGKILL"},
      {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"}, {SIGSYS, "SIGSYS"},   {SIGTERM, "SIGTERM"},
      {SIGTRAP, "SIGTRAP"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},
  };
  for (const auto& known : kNames) {
    if (known.number == number) {
      return known.name;
    }
  }
  return "signal " + std::to_string(number);
}

// The parent may be killed without a word: the kernel then takes the child along where it can be asked to, and
// elsewhere the end of the socket tells it.
void die_with(pid_t parent) {
#if defined(__linux__)
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) {
    _exit(static_cast<int>(Failure::kChild));
  }
}

} // namespace

Children::Children(const LockstepOptions& options, int64_t deadline) : deadline_(deadline) {
  // A child that is gone shows itself where it is written to; whoever started us may have ignored SIGCHLD.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t parent = getpid();
  // A stream of its own: the order of turns stays what the seed alone makes it.
  SplitMix64 layouts(SplitMix64(options.order_seed).draw());
  for (const Options& child : options.children) {
    const uint64_t layout = layouts.draw();
    const std::string name = name_of(all_.size(), child);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
      throw Stop(Failure::kChild, name + ": cannot be started: " + std::strerror(errno));
    }
    Channel ours(ends[0]);
    Channel theirs(ends[1]);
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) {
      throw Stop(Failure::kChild, name + ": cannot be started: " + std::strerror(errno));
    }
    if (pid == 0) {
      die_with(parent);
      // A parent's end that stays open here would hide the parent's death from the others.
      close(ends[0]);
      for (const Child& other : all_) {
        close(other.channel.socket());
      }
      // Not a return: what the parent's stack holds is not this process's to clear away.
      std::exit(serve_turns(child, options.turn_length, layout, std::move(theirs)));
    }
    all_.push_back({name, pid, std::move(ours)});
  }
}

Children::~Children() {
  for (Child& child : all_) {
    if (!child.reaped) {
      kill(child.pid, SIGKILL);
    }
  }
  for (Child& child : all_) {
    if (!child.reaped) {
      reap(child);
    }
  }
}

void Children::tell(size_t index, Word word, const std::string& doing) {
  if (!all_[index].channel.send(word)) {
    lost(index, doing);
  }
}

std::string Children::answer(size_t index, Word word, const std::string& doing) {
  std::vector<pollfd> waiting;
  for (const Child& child : all_) {
    waiting.push_back({child.channel.socket(), POLLIN, 0});
  }
  int ready = 0;
  do {
    ready = poll(waiting.data(), waiting.size(), poll_timeout(deadline_));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    throw Stop(Failure::kTimeLimit, name(index) + ": time limit reached while " + doing);
  }
  for (size_t i = 0; i < all_.size(); ++i) {
    if (waiting[i].revents == 0) {
      continue;
    }
    const auto message = all_[i].channel.receive(deadline_);
    if (!message) {
      lost(i, doing);
    }
    if (i != index || message->word != word) {
      stop_for(i, *message);
    }
    return message->body;
  }
  throw Stop(Failure::kInternal, "poll() names no child");
}

void Children::dismiss() {
  for (Child& child : all_) {
    shutdown(child.channel.socket(), SHUT_RDWR);
  }
  for (size_t i = 0; i < all_.size(); ++i) {
    const std::optional<int> status = reap(all_[i]);
    if (!status || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
      ended(i, status);
    }
  }
}

void Children::stop_for(size_t index, const Message& message) {
  if (message.word != Word::kFailed) {
    throw Stop(Failure::kInternal, name(index) + ": answered out of turn");
  }
  char* rest = nullptr;
  const long code = std::strtol(message.body.c_str(), &rest, 10);
  throw Stop(static_cast<Failure>(code), name(index) + ":" + rest);
}

void Children::lost(size_t index, const std::string& doing) {
  if (now_ns() >= deadline_) {
    throw Stop(Failure::kTimeLimit, name(index) + ": time limit reached while " + doing);
  }
  ended(index, reap(all_[index]));
}

void Children::ended(size_t index, std::optional<int> status) {
  if (!status) {
    throw Stop(Failure::kTimeLimit, name(index) + ": time limit reached while ending");
  }
  if (WIFSIGNALED(*status)) {
    throw Stop(Failure::kChild, name(index) + ": crashed with " + signal_name(WTERMSIG(*status)));
  }
  throw Stop(
      Failure::kChild, name(index) + ": ended too early with exit code " + std::to_string(WEXITSTATUS(*status)));
}

std::optional<int> Children::reap(Child& child) {
  const int64_t patience = std::min(deadline_, now_ns() + kGraceNs);
  const timespec pause{0, 200'000};
  bool killed = false;
  for (;;) {
    int status = 0;
    const pid_t found = waitpid(child.pid, &status, killed ? 0 : WNOHANG);
    if (found == child.pid || (found < 0 && errno != EINTR)) {
      child.reaped = true;
      return killed ? std::nullopt : std::optional<int>(status);
    }
    if (!killed && now_ns() > patience) {
      kill(child.pid, SIGKILL);
      killed = true;
    }
    nanosleep(&pause, nullptr);
  }
}

} // namespace sme2prof
