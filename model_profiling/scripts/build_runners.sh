#!/usr/bin/env bash
# Puts the kit's runner where configs of the earlier kit look for ExecuTorch's; --from-source DIR builds that one.
# All options: bash model_profiling/scripts/build_runners.sh --help
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
if [[ ! -f "$root/model_profiling/compat/source_build.py" ]]; then
  echo "error: build_runners.sh works only in a clone of the kit, in model_profiling/scripts" >&2
  exit 2
fi
python="${PYTHON:-$root/.venv/bin/python}"
[[ -n "${PYTHON:-}" || -x "$python" ]] || python="$(command -v python3)" || {
  echo "error: no Python found; run model_profiling/scripts/setup_repo.sh first" >&2
  exit 2
}

# The programs go to EXECUTORCH_DIR, else to executorch/; --executorch overrides both.
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m model_profiling.compat.source_build \
  --executorch "${EXECUTORCH_DIR:-$root/executorch}" "$@"
