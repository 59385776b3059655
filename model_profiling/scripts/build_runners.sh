#!/usr/bin/env bash
# Builds ExecuTorch's own executor_runner: SME2 on and off, timing and XNNPACK log. Profiling does not need it.
# All options: bash model_profiling/scripts/build_runners.sh --help
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
if [[ ! -f "$root/model_profiling/runner/source_build/__main__.py" ]]; then
  echo "error: build_runners.sh works only in a clone of the kit, in model_profiling/scripts" >&2
  exit 2
fi
python="${PYTHON:-$root/.venv/bin/python}"
[[ -n "${PYTHON:-}" || -x "$python" ]] || python="$(command -v python3)" || {
  echo "error: no Python found; run model_profiling/scripts/setup_repo.sh first" >&2
  exit 2
}

# EXECUTORCH_DIR, then executorch/, where the sources are fetched to if they are not there; --executorch
# overrides both.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m model_profiling.runner.source_build build \
  --executorch "${EXECUTORCH_DIR:-$root/executorch}" "$@"
