// Loaded into adbd before it starts: gives it the properties that `PHONE_PROPERTIES` lists, "name=value" a line.
#include <cstdlib>
#include <sstream>
#include <string>

extern "C" int __system_property_set(const char* name, const char* value);

namespace {

struct Properties {
  Properties() {
    const char* listed = std::getenv("PHONE_PROPERTIES");
    std::istringstream lines(listed ? listed : "");
    for (std::string line; std::getline(lines, line);) {
      const auto sign = line.find('=');
      if (sign != std::string::npos) {
        __system_property_set(line.substr(0, sign).c_str(), line.substr(sign + 1).c_str());
      }
    }
    unsetenv("PHONE_PROPERTIES");  // nothing for the shells it starts
  }
};

const Properties properties;

}  // namespace
