#include "channel.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <poll.h>
#include <unistd.h>

#include "clock.h"

namespace sme2prof {

Channel::~Channel() {
  if (socket_ >= 0) {
    close(socket_);
  }
}

Channel::Channel(Channel&& other) noexcept : socket_(other.socket_) {
  other.socket_ = -1;
}

bool Channel::send(Word word, const std::string& body) {
  const uint64_t header[2] = {static_cast<uint64_t>(word), body.size()};
  std::string bytes(reinterpret_cast<const char*>(header), sizeof(header));
  bytes += body;
  const char* at = bytes.data();
  size_t left = bytes.size();
  while (left > 0) {
    const ssize_t written = write(socket_, at, left);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    at += written;
    left -= static_cast<size_t>(written);
  }
  return true;
}

std::optional<Message> Channel::receive(int64_t deadline) {
  uint64_t header[2];
  if (!read_all(header, sizeof(header), deadline)) {
    return std::nullopt;
  }
  Message message{static_cast<Word>(header[0]), std::string(header[1], '\0')};
  if (!read_all(message.body.data(), message.body.size(), deadline)) {
    return std::nullopt;
  }
  return message;
}

bool Channel::read_all(void* into, size_t size, int64_t deadline) {
  char* at = static_cast<char*>(into);
  while (size > 0) {
    if (deadline != kNoDeadline) {
      pollfd waiting{socket_, POLLIN, 0};
      const int ready = poll(&waiting, 1, poll_timeout(deadline));
      if (ready < 0 && errno == EINTR) {
        continue;
      }
      if (ready <= 0) {
        return false;
      }
    }
    const ssize_t got = read(socket_, at, size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;
    }
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

int poll_timeout(int64_t deadline) {
  if (deadline == kNoDeadline) {
    return -1;
  }
  const int64_t left_ns = std::max<int64_t>(deadline - now_ns(), 0);
  return static_cast<int>(std::min<int64_t>((left_ns + 999'999) / 1'000'000, INT_MAX));
}

std::string pack(const std::vector<int64_t>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
}

std::vector<int64_t> unpack(const std::string& bytes) {
  std::vector<int64_t> numbers(bytes.size() / sizeof(int64_t));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int64_t));
  }
  return numbers;
}

} // namespace sme2prof
