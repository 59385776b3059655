#include "memory_rate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "clock.h"

namespace sme2prof {
namespace {

constexpr size_t kBytes = 128u << 20; // larger than any cache of a phone or laptop
constexpr int kPasses = 6;
constexpr size_t kLanes = 8; // independent sums, so that loads do not wait for each other

uint64_t sum_of(const uint64_t* words, size_t count) {
  uint64_t sums[kLanes] = {};
  for (size_t at = 0; at + kLanes <= count; at += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += words[at + lane];
    }
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) {
    all += sum;
  }
  return all;
}

} // namespace

double memory_read_rate(size_t threads) {
  const size_t count = std::max<size_t>(threads, 1);
  const std::vector<uint64_t> words(kBytes / sizeof(uint64_t), 1);
  const size_t part = words.size() / count;
  std::atomic<uint64_t> kept{0}; // so that the compiler cannot drop the reads
  int64_t best = INT64_MAX;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<std::thread> others;
    const int64_t began = now_ns();
    for (size_t i = 1; i < count; ++i) {
      others.emplace_back([&, i] { kept += sum_of(words.data() + i * part, part); });
    }
    kept += sum_of(words.data(), part);
    for (std::thread& other : others) {
      other.join();
    }
    best = std::min(best, now_ns() - began);
  }
  const auto bytes = static_cast<double>(part * count * sizeof(uint64_t));
  return kept == 0 ? 0 : bytes * 1e9 / static_cast<double>(std::max<int64_t>(best, 1));
}

} // namespace sme2prof
