// Just enough JSON to write one result: objects and arrays built as text, in order.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace sme2prof::json {

inline std::string text(const std::string& value) {
  std::string out = "\"";
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

inline std::string text_or_null(const std::string& value) {
  return value.empty() ? "null" : text(value);
}

inline std::string boolean(bool value) {
  return value ? "true" : "false";
}

template <typename Items, typename Format>
std::string array(const Items& items, Format format) {
  std::string out = "[";
  for (const auto& item : items) {
    out += (out.size() > 1 ? ", " : "") + format(item);
  }
  return out + "]";
}

template <typename Number>
std::string numbers(const std::vector<Number>& items) {
  return array(items, [](Number n) { return std::to_string(n); });
}

inline std::string texts(const std::vector<std::string>& items) {
  return array(items, text);
}

template <typename Number>
std::string object(const std::map<std::string, Number>& items) {
  std::string out = "{";
  for (const auto& [key, value] : items) {
    out += (out.size() > 1 ? ", " : "") + text(key) + ": " + std::to_string(value);
  }
  return out + "}";
}

class Object {
 public:
  Object& add(const std::string& key, const std::string& value) {
    body_ += (body_.empty() ? "" : ", ") + text(key) + ": " + value;
    return *this;
  }
  std::string str() const {
    return "{" + body_ + "}";
  }

 private:
  std::string body_;
};

} // namespace sme2prof::json
