#include "machine.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <unistd.h>

#include "json.h"

namespace sme2prof {
namespace {

template <typename Number>
std::optional<Number> read_number(const std::string& path) {
  std::ifstream file(path);
  Number number{};
  return file >> number ? std::optional<Number>(number) : std::nullopt;
}

template <typename Number>
std::string or_null(const std::optional<Number>& number) {
  return number ? std::to_string(*number) : "null";
}

struct CpuTicks {
  std::optional<uint64_t> steal;
  std::optional<uint64_t> idle;
  std::optional<uint64_t> total;
  std::optional<uint64_t> cpus; // that the ticks are of
};

CpuTicks cpu_ticks() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line);
  std::string name;
  if (!(fields >> name) || name != "cpu") {
    return {};
  }
  // user nice system idle iowait irq softirq steal; what follows is counted in user and nice already.
  constexpr size_t kFields = 8;
  std::vector<uint64_t> ticks;
  for (uint64_t value = 0; ticks.size() < kFields && fields >> value;) {
    ticks.push_back(value);
  }
  if (ticks.size() < kFields) {
    return {};
  }
  uint64_t total = 0;
  for (const uint64_t value : ticks) {
    total += value;
  }
  uint64_t cpus = 0;
  while (std::getline(file, line) && line.rfind("cpu", 0) == 0) {
    ++cpus;
  }
  return {ticks.back(), ticks[3] + ticks[4], total, cpus};
}

// The number in this file of every CPU; null if no CPU has it.
std::string of_each_cpu(const std::string& file) {
  std::vector<std::optional<uint64_t>> found;
  bool any = false;
  for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
    found.push_back(read_number<uint64_t>("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file));
    any = any || found.back();
  }
  return any ? json::array(found, [](const auto& number) { return or_null(number); }) : "null";
}

} // namespace

std::string machine_json() {
  const CpuTicks ticks = cpu_ticks();
  return json::Object()
      .add("steal_ticks", or_null(ticks.steal))
      .add("idle_ticks", or_null(ticks.idle))
      .add("total_ticks", or_null(ticks.total))
      .add("cpus", or_null(ticks.cpus))
      .add("capacities", of_each_cpu("cpu_capacity"))
      .str();
}

} // namespace sme2prof
