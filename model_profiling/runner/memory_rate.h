// How fast the memory of this machine can be read.
#pragma once

#include <cstddef>

namespace sme2prof {

// Bytes per second that `threads` threads read together from memory that no cache holds; the best of several passes.
double memory_read_rate(size_t threads);

} // namespace sme2prof
