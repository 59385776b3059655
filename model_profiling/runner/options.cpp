#include "options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "failure.h"

namespace sme2prof {
namespace {

const char kHelp[] =
    "usage: sme2prof-runner --model FILE.pte [options]\n"
    "  --method NAME           method to run (forward)\n"
    "  --input FILE            raw bytes of the next tensor input; repeat for each\n"
    "  --fill random|ones      what inputs hold when no files are given (random)\n"
    "  --seed N                seed of the random inputs (0)\n"
    "  --output-prefix PATH    write output N to PATHN.bin\n"
    "  --threads N             threads of the XNNPACK thread pool (1)\n"
    "  --warmup N              executions before the measured ones (1)\n"
    "  --executions N          measured executions (1)\n"
    "  --etdump FILE           trace the measured executions into FILE\n"
    "  --disable FLAG,FLAG     cpuinfo flags to clear before XNNPACK loads\n"
    "  --count-kernels         count calls of KleidiAI kernels\n"
    "  --time-limit SECONDS    end the process after this long\n"
    "  --result FILE           write the JSON result here (standard output)\n"
    "  --features-only         report CPU features and stop\n";

uint64_t whole_number(const std::string& flag, const std::string& text, uint64_t limit) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || rest != end || value > limit) {
    throw Stop(Failure::kUsage, flag + " wants a whole number, not '" + text + "'");
  }
  return value;
}

double seconds(const std::string& flag, const std::string& text) {
  constexpr double kLongest = 1e9; // thirty years: any timer can hold it
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0 || value > kLongest) {
    throw Stop(Failure::kUsage, flag + " wants a number of seconds, not '" + text + "'");
  }
  return value;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    if (comma > begin) {
      parts.push_back(text.substr(begin, comma - begin));
    }
    begin = comma + 1;
  }
  return parts;
}

} // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--help") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    if (flag == "--count-kernels") {
      options.count_kernels = true;
      continue;
    }
    if (flag == "--features-only") {
      options.features_only = true;
      continue;
    }
    std::string value;
    const size_t equals = flag.find('=');
    if (equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag = flag.substr(0, equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      throw Stop(Failure::kUsage, "unknown flag or missing value: " + flag);
    }
    if (flag == "--model") {
      options.model = value;
    } else if (flag == "--method") {
      options.method = value;
    } else if (flag == "--input") {
      options.inputs.push_back(value);
    } else if (flag == "--fill" && (value == "random" || value == "ones")) {
      options.fill = value;
    } else if (flag == "--seed") {
      options.seed = whole_number(flag, value, UINT64_MAX);
    } else if (flag == "--output-prefix") {
      options.output_prefix = value;
    } else if (flag == "--threads") {
      options.threads = static_cast<uint32_t>(whole_number(flag, value, 1024));
    } else if (flag == "--warmup") {
      options.warmup = static_cast<uint32_t>(whole_number(flag, value, UINT32_MAX));
    } else if (flag == "--executions") {
      options.executions = static_cast<uint32_t>(whole_number(flag, value, UINT32_MAX));
    } else if (flag == "--etdump") {
      options.etdump = value;
    } else if (flag == "--disable") {
      options.disable = split(value);
    } else if (flag == "--time-limit") {
      options.time_limit_s = seconds(flag, value);
    } else if (flag == "--result") {
      options.result = value;
    } else {
      throw Stop(Failure::kUsage, "unknown flag or value: " + flag + " " + value);
    }
  }
  if (options.model.empty() && !options.features_only) {
    throw Stop(Failure::kUsage, "--model is required; see --help");
  }
  if (options.threads == 0 || options.executions == 0) {
    throw Stop(Failure::kUsage, "--threads and --executions start at 1");
  }
  return options;
}

} // namespace sme2prof
