#include "memory_rate.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace sme2prof {
namespace {

constexpr size_t kBytes = 128u << 20; // larger than any cache of a phone or laptop
constexpr size_t kPieceBytes = 1u << 20; // short enough to count whole pieces between two preemptions
constexpr int kPasses = 6;
std::atomic<uint64_t> kept{0}; // so that the compiler cannot drop the reads

// A cache line as vectors with a sum each: loads do not wait for each other, and sums stay in registers.
struct Line {
  uint64_t __attribute__((vector_size(16))) a, b, c, d;
};

uint64_t sum_of(const Line* line, const Line* end) {
  Line sum = {};
  for (; line < end; ++line) {
    sum.a += line->a;
    sum.b += line->b;
    sum.c += line->c;
    sum.d += line->d;
  }
  const auto all = (sum.a + sum.b) + (sum.c + sum.d);
  return all[0] + all[1];
}

int64_t cpu_ns() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// Bytes per second of CPU time, the median of all pieces.
double rate_of(const Line* lines, size_t count) {
  constexpr size_t kPiece = kPieceBytes / sizeof(Line);
  std::vector<int64_t> times;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t at = 0; at + kPiece <= count; at += kPiece) {
      const int64_t began = cpu_ns();
      kept = sum_of(lines + at, lines + at + kPiece);
      times.push_back(cpu_ns() - began);
    }
  }
  if (times.empty()) {
    return 0;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return kPieceBytes * 1e9 / static_cast<double>(std::max<int64_t>(*middle, 1));
}

} // namespace

double memory_read_rate(size_t threads) {
  const size_t count = std::max<size_t>(threads, 1);
  const std::vector<Line> lines(kBytes / sizeof(Line), Line{{1, 1}, {1, 1}, {1, 1}, {1, 1}});
  const size_t part = lines.size() / count;
  std::vector<double> rates(count);
  std::vector<std::thread> others;
  for (size_t i = 1; i < count; ++i) {
    others.emplace_back([&, i] { rates[i] = rate_of(lines.data() + i * part, part); });
  }
  rates[0] = rate_of(lines.data(), part);
  double all = rates[0];
  for (size_t i = 1; i < count; ++i) {
    others[i - 1].join();
    all += rates[i];
  }
  return all;
}

} // namespace sme2prof
