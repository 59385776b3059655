#!/usr/bin/env bash
# Gets the kit without git: downloads its archive and unpacks it. This file works alone, in any folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: download_scripts.sh ARCHIVE [--dest FOLDER]

Downloads the kit with curl or wget and unpacks it into a new folder. ARCHIVE is the address of a .tar.gz of this
repository, as the page of the repository offers it; a file of this machine begins with file://.

  --dest D   the new folder   [default: executorch_sme2_kit]

Example:
  bash download_scripts.sh ARCHIVE && cd executorch_sme2_kit && bash model_profiling/scripts/setup_repo.sh
HELP
}

dest=executorch_sme2_kit url=
fail() { echo "error: $*" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --dest) dest=${2:?error: --dest needs a folder}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *) [ -z "$url" ] || fail "$1 is a second address; name one"; url=$1; shift ;;
  esac
done
[ -n "$url" ] || fail "no address of the kit's .tar.gz; see --help"
[ ! -e "$dest" ] || fail "$dest is there already; name another folder with --dest"
mkdir -p "$(dirname "$dest")"
part=$(mktemp -d "$dest.XXXXXX")
trap 'rm -rf "$part"' EXIT
if command -v curl >/dev/null; then
  curl --fail --location --silent --show-error --max-time 600 --output "$part/kit.tar.gz" "$url" ||
    fail "$url cannot be downloaded; check the address and the network"
elif command -v wget >/dev/null; then
  wget --quiet --timeout=60 --tries=2 --output-document "$part/kit.tar.gz" "$url" ||
    fail "$url cannot be downloaded; check the address and the network"
else
  fail "neither curl nor wget is installed; install one, or open $url in a browser"
fi
mkdir "$part/kit"
tar -xzf "$part/kit.tar.gz" -C "$part/kit" --strip-components=1 2>/dev/null ||
  fail "$url is not a whole .tar.gz; try again"
# The earlier kit has this file's neighbours, but not what they call.
[ -f "$part/kit/model_profiling/cli/main.py" ] || fail "$url is not an archive of this kit; correct the address"
mv "$part/kit" "$dest"
echo "The kit is in $dest. Next: cd $dest && bash model_profiling/scripts/setup_repo.sh"
