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
    "  --sizes I=1x32          sizes of input I, up to those it was exported with; for inputs of variable length\n"
    "  --values I=V,V          values of input I; one value fills all of it\n"
    "  --state BUF:OFFSET:SIZE put this range of planned memory back to its first content before each execution\n"
    "  --fill random|ones      what inputs hold when no files are given (random)\n"
    "  --seed N                seed of the random inputs (0)\n"
    "  --output-prefix PATH    write output N to PATHN.bin\n"
    "  --threads N             threads of the XNNPACK thread pool (1)\n"
    "  --warmup N              executions before the measured ones (1)\n"
    "  --executions N          measured executions (1)\n"
    "  --etdump FILE           trace the measured executions into FILE\n"
    "  --boundaries FILE       write the nanoseconds at which its XNNPACK operators began and ended into FILE\n"
    "  --disable FLAG,FLAG     cpuinfo flags to clear before XNNPACK loads\n"
    "  --library FILE          open a library with operators of its own; repeat for several, in order\n"
    "  --count-kernels         count calls of KleidiAI kernels\n"
    "  --cold                  load from the disk: ask the system first to forget the program; then see what a\n"
    "                          file of packed weights brings to loading\n"
    "  --memory-rate           also measure how fast this machine's memory can be read\n"
    "  --sample FILE           write where each thread was seen, at random moments; slows the run\n"
    "  --sample-hz N           how often to look, for each thread and second (1000)\n"
    "  --time-limit SECONDS    end the process after this long\n"
    "  --result FILE           write the JSON result here (standard output)\n"
    "  --features-only         report CPU features and operators, and stop\n"
    "\n"
    "usage: sme2prof-runner --lockstep [options] --child OPTIONS... --child OPTIONS...\n"
    "  Several programs take turns, each in a process of its own. A child's options are those above but\n"
    "  --executions, --count-kernels, --cold, --memory-rate, --sample, --sample-hz, --time-limit, --result and\n"
    "  --features-only. Before the first --child:\n"
    "  --cycles N              end after this many cycles; in each, every child has one turn\n"
    "  --turn-length K         executions in a turn (4)\n"
    "  --order-seed S          seed of the order of turns (0)\n"
    "  --time-limit SECONDS    end all processes after this long\n"
    "  --result FILE           write the JSON result here (standard output)\n";

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

std::vector<std::string> split(const std::string& text, char separator = ',') {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(separator, begin), text.size());
    if (comma > begin) {
      parts.push_back(text.substr(begin, comma - begin));
    }
    begin = comma + 1;
  }
  return parts;
}

double number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') {
    throw Stop(Failure::kUsage, flag + " wants a number, not '" + text + "'");
  }
  return value;
}

struct ForInput {
  size_t input;
  std::vector<std::string> parts;
};

// `I=part,part`
ForInput for_input(const std::string& flag, const std::string& text, char separator) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw Stop(Failure::kUsage, flag + " wants the number of an input, '=' and what it gets, not '" + text + "'");
  }
  return {whole_number(flag, text.substr(0, equals), UINT16_MAX), split(text.substr(equals + 1), separator)};
}

InputSizes sizes_of(const std::string& flag, const std::string& text) {
  const auto [input, parts] = for_input(flag, text, 'x');
  InputSizes found{input, {}};
  for (const std::string& part : parts) {
    found.sizes.push_back(static_cast<int32_t>(whole_number(flag, part, INT32_MAX)));
  }
  return found;
}

InputValues values_of(const std::string& flag, const std::string& text) {
  const auto [input, parts] = for_input(flag, text, ',');
  InputValues found{input, {}};
  for (const std::string& part : parts) {
    found.values.push_back(number(flag, part));
  }
  return found;
}

StateRange state_of(const std::string& flag, const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() != 3) {
    throw Stop(Failure::kUsage, flag + " wants BUFFER:OFFSET:SIZE, not '" + text + "'");
  }
  return {
      whole_number(flag, parts[0], UINT16_MAX),
      whole_number(flag, parts[1], INT64_MAX),
      whole_number(flag, parts[2], INT64_MAX)};
}

struct FlagValue {
  std::string flag;
  std::string value;
};

// The flag at `at` and its value, `--flag value` or `--flag=value`; moves `at` past both.
FlagValue next_word(const std::vector<std::string>& words, size_t& at) {
  const std::string& word = words[at++];
  const size_t equals = word.find('=');
  if (equals != std::string::npos) {
    return {word.substr(0, equals), word.substr(equals + 1)};
  }
  if (at == words.size()) {
    throw Stop(Failure::kUsage, "unknown flag or missing value: " + word);
  }
  return {word, words[at++]};
}

[[noreturn]] void refuse(const FlagValue& word) {
  throw Stop(Failure::kUsage, "unknown flag or value: " + word.flag + " " + word.value);
}

void print_help() {
  std::fputs(kHelp, stdout);
  std::exit(0);
}

// What one program in one process is told, alone or as one of several; false for any other flag.
bool take_program_flag(Options& options, const FlagValue& word) {
  const auto& [flag, value] = word;
  if (flag == "--model") {
    options.model = value;
  } else if (flag == "--method") {
    options.method = value;
  } else if (flag == "--input") {
    options.inputs.push_back(value);
  } else if (flag == "--sizes") {
    options.sizes.push_back(sizes_of(flag, value));
  } else if (flag == "--values") {
    options.values.push_back(values_of(flag, value));
  } else if (flag == "--state") {
    options.state.push_back(state_of(flag, value));
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
  } else if (flag == "--etdump") {
    options.etdump = value;
  } else if (flag == "--boundaries") {
    options.boundaries = value;
  } else if (flag == "--disable") {
    options.disable = split(value);
  } else if (flag == "--library") {
    options.libraries.push_back(value);
  } else {
    return false;
  }
  return true;
}

void check(const Options& options) {
  if (options.model.empty() && !options.features_only) {
    throw Stop(Failure::kUsage, "--model is required; see --help");
  }
  if (options.threads == 0 || options.executions == 0 || options.sample_hz == 0) {
    throw Stop(Failure::kUsage, "--threads, --executions and --sample-hz start at 1");
  }
  if (!options.boundaries.empty() && options.etdump.empty()) {
    throw Stop(Failure::kUsage, "--boundaries are of the operators in a dump: name it with --etdump");
  }
}

} // namespace

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (size_t at = 0; at < words.size();) {
    if (words[at] == "--help") {
      print_help();
    }
    if (words[at] == "--count-kernels") {
      options.count_kernels = true;
      ++at;
      continue;
    }
    if (words[at] == "--cold") {
      options.cold = true;
      ++at;
      continue;
    }
    if (words[at] == "--memory-rate") {
      options.memory_rate = true;
      ++at;
      continue;
    }
    if (words[at] == "--features-only") {
      options.features_only = true;
      ++at;
      continue;
    }
    const FlagValue word = next_word(words, at);
    const auto& [flag, value] = word;
    if (flag == "--executions") {
      options.executions = static_cast<uint32_t>(whole_number(flag, value, UINT32_MAX));
    } else if (flag == "--sample") {
      options.sample = value;
    } else if (flag == "--sample-hz") {
      options.sample_hz = static_cast<uint32_t>(whole_number(flag, value, 100'000));
    } else if (flag == "--time-limit") {
      options.time_limit_s = seconds(flag, value);
    } else if (flag == "--result") {
      options.result = value;
    } else if (!take_program_flag(options, word)) {
      refuse(word);
    }
  }
  check(options);
  return options;
}

bool asks_for_lockstep(const std::vector<std::string>& words) {
  return !words.empty() && words.front() == "--lockstep";
}

LockstepOptions parse_lockstep_options(const std::vector<std::string>& words) {
  LockstepOptions options;
  for (size_t at = 1; at < words.size();) {
    if (words[at] == "--help") {
      print_help();
    }
    if (words[at] == "--child") {
      options.children.emplace_back();
      ++at;
      continue;
    }
    const FlagValue word = next_word(words, at);
    const auto& [flag, value] = word;
    if (!options.children.empty()) {
      if (!take_program_flag(options.children.back(), word)) {
        refuse(word);
      }
    } else if (flag == "--cycles") {
      options.cycles = whole_number(flag, value, UINT32_MAX);
    } else if (flag == "--turn-length") {
      options.turn_length = static_cast<uint32_t>(whole_number(flag, value, UINT32_MAX));
    } else if (flag == "--order-seed") {
      options.order_seed = whole_number(flag, value, UINT64_MAX);
    } else if (flag == "--time-limit") {
      options.time_limit_s = seconds(flag, value);
    } else if (flag == "--result") {
      options.result = value;
    } else {
      refuse(word);
    }
  }
  if (options.children.empty()) {
    throw Stop(Failure::kUsage, "--lockstep needs a --child for each program; see --help");
  }
  if (options.turn_length == 0) {
    throw Stop(Failure::kUsage, "--turn-length starts at 1");
  }
  if (options.cycles == 0) {
    throw Stop(Failure::kUsage, "--lockstep needs --cycles to know its end");
  }
  for (const Options& child : options.children) {
    check(child);
  }
  return options;
}

} // namespace sme2prof
