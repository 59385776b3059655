#include "weights_cache.h"

#include <cstdio>
#include <string>

#include <dlfcn.h>
#include <sys/stat.h>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

#include "costs.h"
#include "failure.h"
#include "loaded_method.h"

namespace sme2prof {
namespace {

using executorch::runtime::BackendOptions;
using executorch::runtime::Error;
using executorch::runtime::LoadBackendOptionsMap;

constexpr char kBackend[] = "XnnpackBackend";

// The time of loading with these options of the backend; `save` then writes what was packed.
int64_t load(const Options& options, BackendOptions<2> of_backend, bool save = false) {
  LoadBackendOptionsMap of_backends;
  CostWatch watch(dlopen(nullptr, RTLD_LAZY), options.model, false); // of the runner itself: it has no calls to see
  if (of_backends.set_options(kBackend, of_backend.view()) != Error::Ok) {
    return 0;
  }
  const LoadedMethod loaded(options, nullptr, watch, &of_backends);
  const int64_t ns = watch.end_load();
  BackendOptions<1> to_save;
  const bool saved = !save ||
      (to_save.set_option("save_weight_cache_on_disk", true) == Error::Ok &&
       executorch::runtime::set_option(kBackend, to_save.view()) == Error::Ok);
  return saved ? ns : 0;
}

} // namespace

std::optional<CachedLoading> load_from_weights_cache(const Options& options) {
  const std::string file = options.result + ".weights";
  BackendOptions<2> without;
  BackendOptions<2> with;
  if (options.result.empty() || file.size() >= executorch::runtime::kMaxOptionValueLength ||
      without.set_option("weight_cache_enabled", false) != Error::Ok ||
      with.set_option("weight_cache_enabled", true) != Error::Ok ||
      with.set_option("packed_cache_path", file.c_str()) != Error::Ok) {
    return std::nullopt;
  }
  std::optional<CachedLoading> found;
  try {
    const int64_t without_ns = load(options, without);
    if (without_ns > 0 && load(options, with, true) > 0) {
      const int64_t with_ns = load(options, with);
      struct stat facts {};
      if (stat(file.c_str(), &facts) == 0 && facts.st_size > 0) {
        found = {without_ns, with_ns, facts.st_size};
      }
    }
  } catch (const Stop&) {
    // A program that loads without the cache, but not with it.
  }
  std::remove(file.c_str());
  return found;
}

} // namespace sme2prof
