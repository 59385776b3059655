// How fast the memory of this machine can be read.
#pragma once

#include <cstddef>

namespace sme2prof {

// Bytes per second of CPU time that `threads` threads read together from memory that no cache holds.
double memory_read_rate(size_t threads);

} // namespace sme2prof
