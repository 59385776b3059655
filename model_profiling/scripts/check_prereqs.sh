#!/usr/bin/env bash
# Says, before anything is installed, whether this machine has what the kit's installation needs.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
if [ ! -f model_profiling/scripts/find_python.sh ]; then
  echo "error: check_prereqs.sh works only in a clone of the kit, in model_profiling/scripts" >&2
  exit 2
fi
. model_profiling/scripts/find_python.sh

usage() {
  cat <<'HELP'
Usage: check_prereqs.sh [--android-run] [--python PYTHON]

Checks Python, venv, a C++ compiler, git and disk space; prints the fix for what is missing.
With --android-run also adb and the NDK, which phones need; the kit gets an adb itself where it can.
Exit 0: the kit can be installed. Exit 1: something it needs is missing.

Example:
  bash model_profiling/scripts/check_prereqs.sh
HELP
}

asked=(--prerequisites)
while [ $# -gt 0 ]; do
  case $1 in
    --android-run) asked+=(--android-run); shift ;;
    --python) PYTHON=${2:?error: --python needs a program}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done

python=$(find_python) || exit 2
exec "$python" model_profiling/scripts/validate_setup.py ${asked[@]+"${asked[@]}"}
