// Messages between the parent and a child of a lockstep launch, over a socket: a word, a size, bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sme2prof {

enum class Word : uint32_t {
  // from the parent
  kStart,
  kTurn,
  kFinish,
  // from a child
  kReady,
  kTimes, // a turn: TurnNumbers, then three numbers for each execution: time, CPU time, preemptions
  kOutputs, // the types and shapes of its outputs
  kUsage, // JSON: what the turns cost the process
  kResult, // JSON: what a single run's result holds
  kFailed, // an exit code and a sentence
};

// The numbers before the times of a turn.
enum TurnNumbers : size_t {
  kStartedNs,
  kCpu, // that executed the turn's end; -1 where the system does not say
  kIdleWaitNs,
  kIdleWaitExceeded,
  kTurnNumbers,
};

struct Message {
  Word word;
  std::string body;
};

constexpr int64_t kNoDeadline = INT64_MAX;

// One end of the socket; closes it. The other process may be gone at any time, which is no error here.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&&) = delete;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int socket() const {
    return socket_;
  }
  // False when the other end is gone.
  bool send(Word word, const std::string& body = "");
  // Nothing when the other end is gone, or silent until `deadline` (of now_ns).
  std::optional<Message> receive(int64_t deadline = kNoDeadline);

 private:
  bool read_all(void* into, size_t size, int64_t deadline);

  int socket_;
};

// The time until `deadline` as poll() wants it: milliseconds, rounded up, negative for none.
int poll_timeout(int64_t deadline);

std::string pack(const std::vector<int64_t>& numbers);
std::vector<int64_t> unpack(const std::string& bytes);

} // namespace sme2prof
