// The one way the runner's files come to be: written whole under another name, then renamed.
#pragma once

#include <cstddef>
#include <string>

namespace sme2prof {

// When a step fails it stops with Failure::kOutput, and what is under `path` is as it was before.
void write_file(const std::string& path, const void* data, size_t size);

} // namespace sme2prof
