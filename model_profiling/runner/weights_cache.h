// How much shorter loading would be if XNNPACK's packed weights came from a file.
#pragma once

#include <cstdint>
#include <optional>

#include "options.h"

namespace sme2prof {

struct CachedLoading {
  int64_t without_ns; // loading once more, like before
  int64_t with_ns; // with the file there
  int64_t file_bytes;
};

// Loads the method three times: packing as ever, packing into a file that is removed afterwards, and from that file.
// Nothing where this ExecuTorch has no such cache, or where the program's weights have no names to keep them under.
std::optional<CachedLoading> load_from_weights_cache(const Options& options);

} // namespace sme2prof
