#include "output_file.h"

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

namespace sme2prof {
namespace {

// A sibling, because a rename does not cross file systems; hidden like those of the kit's other files, so
// that what a killed process leaves is cleared away with them.
std::string part_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(0, name) + "." + path.substr(name) + ".part";
}

// 0, or the errno of the step that failed.
int fill(const std::string& path, const char* data, size_t size) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) {
    return errno;
  }
  int problem = 0;
  while (size > 0 && problem == 0) {
    const ssize_t written = write(file, data, size);
    if (written >= 0) {
      data += written;
      size -= static_cast<size_t>(written);
    } else if (errno != EINTR) {
      problem = errno;
    }
  }
  // Some file systems tell of a full disk only here. There is no fsync: it would disturb the next measurement,
  // and what is lost with the power is measured again.
  if (close(file) != 0 && problem == 0) {
    problem = errno;
  }
  return problem;
}

// A rename would put a plain file in the place of a device such as /dev/null.
bool is_something_else(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

[[noreturn]] void refuse(const std::string& path, std::string reason) {
  reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
  throw Stop(Failure::kOutput, "cannot write " + path + ": " + reason);
}

} // namespace

void write_file(const std::string& path, const void* data, size_t size) {
  if (is_something_else(path)) {
    refuse(path, "it is not a regular file");
  }
  const std::string part = part_of(path);
  int problem = fill(part, static_cast<const char*>(data), size);
  if (problem == 0 && std::rename(part.c_str(), path.c_str()) != 0) {
    problem = errno;
  }
  if (problem != 0) {
    unlink(part.c_str());
    refuse(path, std::strerror(problem));
  }
}

} // namespace sme2prof
