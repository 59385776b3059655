// Who comes when, from a seed: the same on every machine, and redone in Python by result.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace sme2prof {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t draw() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

// SplitMix64 shuffles 0..n-1 from the end (Fisher-Yates, the remainder of a draw by the cards left). The first
// shuffle is the order in which children start, each further one a cycle's.
class TurnOrder {
 public:
  TurnOrder(uint64_t seed, size_t children) : draws_(seed), children_(children) {}

  std::vector<size_t> next() {
    std::vector<size_t> order(children_);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t left = children_; left > 1; --left) {
      std::swap(order[left - 1], order[draws_.draw() % left]);
    }
    return order;
  }

 private:
  SplitMix64 draws_;
  size_t children_;
};

} // namespace sme2prof
