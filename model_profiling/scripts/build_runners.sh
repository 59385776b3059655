#!/usr/bin/env bash
# Puts the kit's runner where configs of the earlier kit look for ExecuTorch's; --from-source builds that one.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
if [[ ! -f "$root/model_profiling/compat/build_runners.py" ]]; then
  echo "error: build_runners.sh works only in a clone of the kit, in model_profiling/scripts" >&2
  exit 2
fi
python="${PYTHON:-$root/.venv/bin/python}"
[[ -n "${PYTHON:-}" || -x "$python" ]] || python="$(command -v python3)" || {
  echo "error: no Python found; run model_profiling/scripts/setup_repo.sh first" >&2
  exit 2
}

usage() {
  cat <<'HELP'
Usage: build_runners.sh [--executorch DIR] [--from-source [PRESET...]]

Puts the kit's runner, which switches SME2 at run time, at each path that configs of the earlier kit name:
DIR/cmake-out/PRESET/executor_runner. Nothing is built.

  --executorch DIR  the folder, for --from-source a checkout of ExecuTorch  [default: $EXECUTORCH_DIR, else executorch]
  --from-source     build ExecuTorch's own runner, with SME2 on and off, with the CMake and Ninja at hand: 11 to 16
                    minutes each on 2 cores. A PRESET is PLATFORM[-sme2-off][-xnnlog], where PLATFORM is mac-arm64,
                    linux-arm64 or android-arm64-v9a (needs ANDROID_NDK); -xnnlog writes XNNPACK's log.
HELP
}

executorch="${EXECUTORCH_DIR:-$root/executorch}"
from_source=no
presets=()
while [ $# -gt 0 ]; do
  case $1 in
    --executorch) executorch=${2:?error: --executorch needs a folder}; shift 2 ;;
    --from-source) from_source=yes; shift ;;
    mac-arm64* | linux-arm64* | android-arm64-v9a*) presets+=("$1"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option or preset $1; see --help" >&2; exit 2 ;;
  esac
done
if [ "$from_source" = no ]; then
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
  exec "$python" -m model_profiling.compat.build_runners --executorch "$executorch"
fi

PATH="$(dirname "$python"):$PATH" # pip puts cmake and ninja there
case $(uname -s)-$(uname -m) in
  Darwin-arm64) here=mac-arm64 ;;
  Linux-aarch64) here=linux-arm64 ;;
  *) here='' ;;
esac
[ ${#presets[@]} -gt 0 ] || presets=("$here" "$here-sme2-off")
for preset in "${presets[@]}"; do
  case $preset in
    android-*) : "${ANDROID_NDK:?error: set ANDROID_NDK to the folder of an NDK, r27 or newer}" ;;
    "${here:-?}"*) ;;
    *) echo "error: ${preset:-a runner} cannot be built on this machine ($(uname -s), $(uname -m))" >&2; exit 2 ;;
  esac
done
if [[ ! -f "$executorch/CMakeLists.txt" || "$(basename "$executorch")" != executorch ]]; then
  echo "error: $executorch is no checkout called executorch; get one with setup_repo.sh --from-source" >&2
  exit 2
fi

build() { # of a preset; what an earlier, stopped build has made is used
  local out="$executorch/cmake-out/$1" sme2=ON number=1 options=() compiled
  case $1 in *-sme2-off*) sme2=OFF number=0 ;; esac
  case $1 in *-xnnlog) options+=(-DEXECUTORCH_XNNPACK_LOG_LEVEL=5) ;; esac
  case $1 in
    mac-*) options+=(-DCMAKE_OSX_ARCHITECTURES=arm64) ;;
    android-*)
      options+=("-DCMAKE_TOOLCHAIN_FILE=$ANDROID_NDK/build/cmake/android.toolchain.cmake"
        -DANDROID_ABI=arm64-v8a -DANDROID_PLATFORM=android-28 -DANDROID_STL=c++_static) ;;
  esac
  rm -f "$out/runner_build.json" # of the kit's runner in this place
  cmake -S "$executorch" -B "$out" -G Ninja -C "$root/model_profiling/scripts/executor_runner.cmake" \
    "-DPYTHON_EXECUTABLE=$python" -DXNNPACK_ENABLE_ARM_SME=$sme2 -DXNNPACK_ENABLE_ARM_SME2=$sme2 \
    ${options[@]+"${options[@]}"}
  compiled=$(grep -oE 'XNN_ENABLE_ARM_SME2?=[01]' "$out/compile_commands.json" | LC_ALL=C sort -u | tr '\n' ' ' || true)
  if [ "$compiled" != "XNN_ENABLE_ARM_SME2=$number XNN_ENABLE_ARM_SME=$number " ]; then
    echo "error: $1 is compiled with ${compiled:-no switch of SME}: remove $out, and use clang 18, GCC 14 or newer" \
      "(CC and CXX choose it); an older compiler silently leaves SME2 out" >&2
    return 1
  fi
  cmake --build "$out" --target executor_runner --parallel
  echo "$out/executor_runner: built"
}

for preset in "${presets[@]}"; do
  build "$preset"
done
