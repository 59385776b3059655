#include "cpu_features.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <dlfcn.h>

#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__GLIBC__)
#include <link.h>
#endif

#include "failure.h"

extern "C" bool cpuinfo_initialize(void);

namespace sme2prof {

#if !defined(__aarch64__)

CpuFeatures mask_cpu_features(const std::vector<std::string>& disable) {
  CpuFeatures features;
  features.note = disable.empty() ? "not an Arm CPU: no Arm features"
                                  : "not an Arm CPU: there are no Arm features to switch off";
  return features;
}

#else

namespace {

struct Flag {
  const char* name;
  size_t offset; // in cpuinfo's private structure
  int word; // 1: HWCAP, 2: HWCAP2
  uint64_t bits; // all of them
  const char* sysctl;
  // cpuinfo copies most flags from the system, but knows some CPUs better than old Linux kernels do, and
  // takes what every Apple CPU has for granted. Such a flag may differ without the layout being wrong.
  bool guessed_on_linux = false;
  bool given_on_macos = false;
};

constexpr uint64_t bit(int n) {
  return uint64_t{1} << n;
}

// Offsets are cpuinfo's; bits are the kernel's. Nothing below is trusted until the two agree on this machine.
const Flag kFlags[] = {
    {"atomics", 0, 1, bit(8), "FEAT_LSE"},
    {"bf16", 1, 2, bit(14), "FEAT_BF16"},
    {"sve", 2, 1, bit(22), "FEAT_SVE"},
    {"sve2", 3, 2, bit(1), "FEAT_SVE2"},
    {"i8mm", 4, 2, bit(13), "FEAT_I8MM"},
    {"sme", 5, 2, bit(23), "FEAT_SME"},
    {"sme2", 6, 2, bit(37), "FEAT_SME2"},
    {"sme2p1", 7, 2, bit(38), "FEAT_SME2p1"},
    {"sme_i16i32", 8, 2, bit(39), "SME_I16I32"},
    {"sme_bi32i32", 9, 2, bit(40), "SME_BI32I32"},
    {"sme_b16b16", 10, 2, bit(41), "FEAT_SME_B16B16"},
    {"sme_f16f16", 11, 2, bit(42), "FEAT_SME_F16F16"},
    {"rdm", 20, 1, bit(12), "FEAT_RDM", true},
    {"fp16arith", 21, 1, bit(9) | bit(10), "FEAT_FP16", true},
    {"dot", 22, 1, bit(20), "FEAT_DotProd", true},
    {"jscvt", 23, 1, bit(13), "FEAT_JSCVT"},
    {"fcma", 24, 1, bit(14), "FEAT_FCMA"},
    {"fhm", 25, 1, bit(23), "FEAT_FHM"},
    {"aes", 26, 1, bit(3), "FEAT_AES", false, true},
    {"sha1", 27, 1, bit(5), "FEAT_SHA1", false, true},
    {"sha2", 28, 1, bit(6), "FEAT_SHA256", false, true},
    {"pmull", 29, 1, bit(4), "FEAT_PMULL", false, true},
    {"crc32", 30, 1, bit(7), "FEAT_CRC32", false, true},
};
constexpr size_t kSmeLengthOffset = 16;

// Vector lengths are numbers, not flags: they anchor the middle of the structure.
std::string length_disagreement(const char* name, const unsigned char* place, uint32_t expected) {
  uint32_t kept = 0;
  std::memcpy(&kept, place, sizeof(kept));
  if (kept == expected) {
    return "";
  }
  return std::string("the ") + name + " vector length is " + std::to_string(kept) + " bytes in cpuinfo, " +
      std::to_string(expected) + " in the operating system";
}

#if defined(__linux__)

bool reported(const Flag& flag) {
  const uint64_t word = getauxval(flag.word == 1 ? AT_HWCAP : AT_HWCAP2);
  return (word & flag.bits) == flag.bits;
}

bool may_differ(const Flag& flag) {
  return flag.guessed_on_linux;
}

uint32_t asked_length(int request) {
  const int answer = prctl(request);
  return answer > 0 ? static_cast<uint32_t>(answer & 0xffff) : 0;
}

std::string lengths_disagreement(const unsigned char* isa) {
  constexpr size_t kSveLengthOffset = 12;
  constexpr int kSveGetLength = 51; // PR_SVE_GET_VL and PR_SME_GET_VL, which old headers lack
  constexpr int kSmeGetLength = 64;
  const std::string sve = length_disagreement("SVE", isa + kSveLengthOffset, asked_length(kSveGetLength));
  return !sve.empty() ? sve
                      : length_disagreement("SME", isa + kSmeLengthOffset, asked_length(kSmeGetLength));
}

#else

uint32_t asked(const std::string& name) {
  uint32_t value = 0;
  size_t size = sizeof(value);
  const std::string full = "hw.optional.arm." + name;
  return sysctlbyname(full.c_str(), &value, &size, nullptr, 0) == 0 ? value : 0;
}

bool reported(const Flag& flag) {
  return flag.given_on_macos || asked(flag.sysctl) == 1;
}

bool may_differ(const Flag&) {
  return false;
}

std::string lengths_disagreement(const unsigned char* isa) {
  return length_disagreement("SME", isa + kSmeLengthOffset, asked("sme_max_svl_b"));
}

#endif

#if defined(__GLIBC__)

bool has_room(const void* isa) {
  constexpr size_t kLayoutBytes = 31;
  Dl_info info;
  void* entry = nullptr;
  if (dladdr1(isa, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) {
    return false;
  }
  return static_cast<const ElfW(Sym)*>(entry)->st_size >= kLayoutBytes;
}

#else

// Mach-O keeps no symbol sizes, and of the C libraries on Linux only glibc tells them. The flags and the vector
// lengths must agree all the same.
bool has_room(const void*) {
  return true;
}

#endif

// Empty when cpuinfo's structure is laid out as the table says.
std::string disagreement(const unsigned char* isa) {
  if (!has_room(isa)) {
    return "cpuinfo_isa is smaller than the known layout";
  }
  for (const Flag& flag : kFlags) {
    const unsigned char kept = isa[flag.offset];
    if (kept > 1) {
      return std::string("the byte for ") + flag.name + " holds " + std::to_string(kept);
    }
    if ((kept == 1) != reported(flag) && !may_differ(flag)) {
      return std::string(flag.name) + " is " + (kept ? "on" : "off") + " in cpuinfo, " +
          (kept ? "off" : "on") + " in the operating system";
    }
  }
  return lengths_disagreement(isa);
}

} // namespace

CpuFeatures mask_cpu_features(const std::vector<std::string>& disable) {
  CpuFeatures features;
  for (const Flag& flag : kFlags) {
    if (reported(flag)) {
      features.present.push_back(flag.name);
    }
  }
  for (const std::string& name : disable) {
    const bool known = std::any_of(
        std::begin(kFlags), std::end(kFlags), [&](const Flag& flag) { return name == flag.name; });
    if (!known) {
      throw Stop(Failure::kUsage, "no CPU feature flag is called '" + name + "'");
    }
  }
  if (!cpuinfo_initialize()) {
    throw Stop(Failure::kMask, "cpuinfo could not look at this CPU");
  }
  auto* isa = static_cast<unsigned char*>(dlsym(RTLD_DEFAULT, "cpuinfo_isa"));
  const std::string problem = isa == nullptr ? "this ExecuTorch does not export cpuinfo_isa" : disagreement(isa);
  features.layout_verified = problem.empty();
  features.note = problem;
  if (disable.empty()) {
    return features;
  }
  if (!problem.empty()) {
    throw Stop(Failure::kMask, "CPU features cannot be switched off safely: " + problem);
  }
  for (const Flag& flag : kFlags) {
    if (isa[flag.offset] && std::find(disable.begin(), disable.end(), flag.name) != disable.end()) {
      isa[flag.offset] = 0;
      features.masked.push_back(flag.name);
    }
  }
  return features;
}

#endif

} // namespace sme2prof
