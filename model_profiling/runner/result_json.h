// What a run saw, as the JSON that the kit reads.
#pragma once

#include <string>

#include "cpu_features.h"
#include "json.h"
#include "measured.h"
#include "options.h"

namespace sme2prof {

json::Object common_json(const CpuFeatures& features);

std::string result_json(const Options& options, const CpuFeatures& features, const Measured& measured, bool in_turns = false);

// Writes `document` to the file `path` names, or to standard output when it is empty.
void publish(const std::string& path, const std::string& document);

} // namespace sme2prof
