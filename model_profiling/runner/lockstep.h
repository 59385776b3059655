// Several programs, each in a process of its own, take turns on the machine: one executes, the others are idle.
#pragma once

#include <string>

#include "options.h"

namespace sme2prof {

// The JSON result. To be called first of all: the processes are forked from here, without exec, so that they
// need no path, also work under an emulator, and find libraries at the same addresses.
std::string run_lockstep(const LockstepOptions& options);

} // namespace sme2prof
