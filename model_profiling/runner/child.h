// A child of a lockstep launch: loads its program when told, executes a turn when told, and is idle otherwise.
#pragma once

#include <cstdint>

#include "channel.h"
#include "options.h"

namespace sme2prof {

// Everything the child process does; returns its exit code. It ends quietly when the parent is gone. `layout` is
// a number drawn for this child of this launch.
int serve_turns(const Options& options, uint32_t turn_length, uint64_t layout, Channel channel);

} // namespace sme2prof
