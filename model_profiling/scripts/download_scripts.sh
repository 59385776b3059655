#!/usr/bin/env bash
# Gets the kit without git: downloads its archive and unpacks it. This file works alone, in any folder.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: download_scripts.sh [--ref REF] [--dest FOLDER] [--url ARCHIVE]

Downloads the kit with curl or wget and unpacks it into a new folder.

  --ref R    branch, tag or commit   [default: HEAD, the newest]
  --dest D   the new folder          [default: executorch_sme2_kit]
  --url U    another .tar.gz, such as the archive of a fork

Example:
  bash download_scripts.sh && cd executorch_sme2_kit && bash model_profiling/scripts/setup_repo.sh
HELP
}

ref=HEAD dest=executorch_sme2_kit url=
while [ $# -gt 0 ]; do
  case $1 in
    --ref) ref=${2:?error: --ref needs a value}; shift 2 ;;
    --dest) dest=${2:?error: --dest needs a folder}; shift 2 ;;
    --url) url=${2:?error: --url needs an address}; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "error: unknown option $1; see --help" >&2; exit 2 ;;
  esac
done
fail() { echo "error: $*" >&2; exit 2; }

url=${url:-https://github.com/ArmDeveloperEcosystem/sme-executorch-profiling/archive/$ref.tar.gz}
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
[ -f "$part/kit/model_profiling/scripts/setup_repo.sh" ] || fail "$url is not an archive of the kit; correct --url"
mv "$part/kit" "$dest"
echo "The kit is in $dest. Next: cd $dest && bash model_profiling/scripts/setup_repo.sh"
