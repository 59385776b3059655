// What the whole machine was doing: read before the first turn and after the last, never in between.
#pragma once

#include <string>

namespace sme2prof {

// A JSON object; what the machine does not tell is null.
std::string machine_json();

} // namespace sme2prof
