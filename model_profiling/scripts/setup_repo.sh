#!/usr/bin/env bash
# Makes the kit ready to use in this clone: .venv, packages, the runner, a check of it all. Safe to repeat.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -f model_profiling/scripts/find_python.sh ] || [ ! -f requirements/run.txt ]; then
  echo "error: setup_repo.sh works only in a clone of the kit, in model_profiling/scripts" >&2
  exit 2
fi
. model_profiling/scripts/find_python.sh

usage() {
  cat <<'HELP'
Usage: setup_repo.sh [options]

Makes .venv, installs the kit with ExecuTorch into it, builds the runner and checks the result.
What is already in place is left alone, so a second call takes a few seconds.

Every package but torch is known by its hash (requirements/README.md).

  --with-tests        also install what the test suite needs
  --from-source       also fetch ExecuTorch's source, for runners built with build_runners.sh
  --executorch-url U  where to fetch it from   [default: the project's own repository]
  --executorch-ref R  branch or tag            [default: the release that is installed]
  --executorch-dir D  where to put it          [default: executorch]
  --python P          the Python to make .venv with
  --help              this text

Example:
  bash model_profiling/scripts/setup_repo.sh && . .venv/bin/activate && sme2prof doctor
HELP
}

lock=run
from_source=no
source_url=https://github.com/pytorch/executorch.git
source_ref=''
source_dir=executorch
while [ $# -gt 0 ]; do
  case $1 in
    --with-tests) lock="test"; shift ;;
    --from-source) from_source=yes; shift ;;
    --executorch-url) source_url=${2:?error: --executorch-url needs a value}; shift 2 ;;
    --executorch-ref) source_ref=${2:?error: --executorch-ref needs a value}; shift 2 ;;
    --executorch-dir) source_dir=${2:?error: --executorch-dir needs a value}; shift 2 ;;
    --python) PYTHON=${2:?error: --python needs a program}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done

step() { printf '== %s\n' "$*"; }

version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true; }

# The stamp's first line is where the environment was made (scripts in it name that place), its second what
# was installed; while both stay true there is nothing to do.
stamp=.venv/.installed
made_in=$(sed -n 1p "$stamp" 2>/dev/null || true)
if [ -e .venv ]; then
  why=
  if [ -z "$(version .venv/bin/python)" ]; then
    why="its Python does not start"
  elif [ -n "$made_in" ] && [ "$made_in" != "$PWD" ]; then
    why="it was made in $made_in"
  elif [ -n "${PYTHON:-}" ] && [ "$(version "$PYTHON")" != "$(version .venv/bin/python)" ]; then
    why="it has another Python than $PYTHON"
  fi
  if [ -n "$why" ]; then
    find_python >/dev/null || exit 2 # nothing is removed that could not be made again
    step "removing .venv: $why"
    rm -rf .venv
  fi
fi
# Packages are taken as they are locked: pip refuses a file with another hash. torch alone goes by its version, and
# where its build is the index's for Linux, with CUDA, it gets the packages that it cannot be loaded without. Python
# compiles the modules that are used when they are first imported, which are a small part of them; where it may not keep
# what it compiled, each start would do so again, so there pip compiles all.
compile=--no-compile
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=--compile
install() { .venv/bin/python -m model_profiling.runner pip install --no-deps "$compile" "$@"; }
install_locked() { install --require-hashes --no-build-isolation --use-pep517 -r "requirements/$1.txt"; }
needs_cuda() {
  .venv/bin/python -c 'import importlib.metadata, sys; sys.exit("nvidia" not in str(importlib.metadata.requires("torch")))'
}

# pip takes one CPU at most: torch, and the runner, which needs nothing but ExecuTorch's wheel, come meanwhile. What
# is left of them when this ends is killed; they end what they have started themselves.
torch_pip='' runner=''
end_rest() {
  for left in $torch_pip $runner; do
    if kill -KILL "$left" 2>/dev/null; then wait "$left" 2>/dev/null || true; fi
  done
}
trap end_rest EXIT

sources=$(cat pyproject.toml requirements/*.txt | cksum | tr ' ' '-')
have=$(sed -n 2p "$stamp" 2>/dev/null || true)
if [ "$have" != "$sources test" ] && [ "$have" != "$sources $lock" ]; then
  python=$(find_python) || exit 2
  "$python" model_profiling/scripts/validate_setup.py --prerequisites || exit 2
  if [ ! -e .venv ]; then
    step "making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  step "installing the kit with requirements/$lock.txt and torch (a few minutes the first time)"
  rm -f "$stamp"
  install_locked build
  install --require-hashes -r model_profiling/runner/executorch.txt
  .venv/bin/python -m model_profiling.targets >.venv/.runner &
  runner=$!
  .venv/bin/python -m model_profiling.runner pip install --no-deps "$compile" -r requirements/torch.txt &
  torch_pip=$!
  install_locked "$lock"
  wait "$torch_pip"
  torch_pip=''
  if needs_cuda; then install_locked torch-cuda; fi
  install --no-build-isolation --editable .
  printf '%s\n%s\n' "$PWD" "$sources $lock" >"$stamp"
fi

step "building the runner"
if [ -n "$runner" ]; then
  wait "$runner"
  runner=''
  cat .venv/.runner
else
  .venv/bin/python -m model_profiling.targets
fi

if [ "$from_source" = yes ] && [ ! -f "$source_dir/CMakeLists.txt" ]; then
  step "fetching ExecuTorch's source"
  version=$(.venv/bin/python -c 'from importlib.metadata import version; print(version("executorch"))')
  git clone --depth 1 --branch "${source_ref:-v$version}" --recurse-submodules --shallow-submodules \
    "$source_url" "$source_dir"
fi

step "checking the result"
.venv/bin/python model_profiling/scripts/validate_setup.py
