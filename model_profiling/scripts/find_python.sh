# shellcheck shell=bash
# Sourced by the setup scripts: prints the first Python between 3.10 and 3.13 that can make environments.

find_python() {
  local candidate bare=
  [ -n "${PYTHON:-}" ] || set -- python3 python3.12 python3.11 python3.13 python3.10
  for candidate in "$@" ${PYTHON:+"$PYTHON"}; do
    if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      command -v "$candidate"
      return 0
    elif [ -z "$bare" ]; then
      bare=$("$candidate" -c 'import sys; v = sys.version_info[:2]; (3, 10) <= v <= (3, 13) and print("%d.%d" % v)' 2>/dev/null || true)
    fi
  done
  if [ -n "$bare" ] && command -v apt-get >/dev/null; then
    echo "error: Python $bare has no venv; apt install python$bare-venv" >&2
    return 1
  fi
  echo "error: no Python 3.10 to 3.13 with venv found (tried ${PYTHON:-python3, python3.10 to python3.13});" \
    "install one, or name it with PYTHON=/path/to/python" >&2
  return 1
}
