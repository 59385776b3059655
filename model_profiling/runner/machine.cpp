#include "machine.h"

#include <algorithm>
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

// The hottest zone.
std::optional<double> temperature_c() {
  std::optional<double> hottest;
  for (int zone = 0; zone < 256; ++zone) {
    const std::string folder = "/sys/class/thermal/thermal_zone" + std::to_string(zone);
    if (access(folder.c_str(), F_OK) != 0) {
      break;
    }
    if (const auto thousandths = read_number<int64_t>(folder + "/temp")) {
      const double degrees = static_cast<double>(*thousandths) / 1000;
      hottest = hottest ? std::max(*hottest, degrees) : degrees;
    }
  }
  return hottest;
}

} // namespace

std::string machine_json() {
  const CpuTicks ticks = cpu_ticks();
  return json::Object()
      .add("steal_ticks", or_null(ticks.steal))
      .add("idle_ticks", or_null(ticks.idle))
      .add("total_ticks", or_null(ticks.total))
      .add("cpus", or_null(ticks.cpus))
      .add("frequencies_khz", of_each_cpu("cpufreq/scaling_cur_freq"))
      .add("capacities", of_each_cpu("cpu_capacity"))
      .add("temperature_c", or_null(temperature_c()))
      .str();
}

} // namespace sme2prof
