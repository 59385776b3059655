#!/usr/bin/env bash
# Installs the system packages some tests need: apt as root, else a note; those tests then skip and say why. Packages go
# by name: apt verifies the signature of the archive that they are of.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called with sh, which may be another shell
set -uo pipefail

wanted=()
sme2_compiler() {
  local compiler
  for compiler in clang clang-18 clang-19 clang-20 clang-21; do
    [ "$("$compiler" -dumpversion 2>/dev/null | cut -d. -f1)" -ge 18 ] 2>/dev/null && return 0
  done
  return 1
}
case "$(uname -s)-$(uname -m)" in
  # Source-built runners are compiled with SME2, which Debian's default compiler is too old for.
  Linux-aarch64 | Linux-arm64) sme2_compiler || wanted+=(clang-19) ;;
  # Everything that is emulated runs an aarch64 runner, which another machine has to cross-compile. The kit
  # would fetch a compiler into its cache; installed, it is there for every test and every user of the machine.
  Linux-*) command -v aarch64-linux-gnu-g++ >/dev/null || wanted+=(g++-aarch64-linux-gnu) ;;
esac
# Other machines are reached with ssh; the server that the tests use is unpacked, never installed.
[ "$(uname -s)" = Linux ] && ! command -v ssh >/dev/null && wanted+=(openssh-client)
# Some tests compile with a sanitizer, which only an installed compiler has.
[ "$(uname -s)" = Linux ] && ! command -v g++ >/dev/null && wanted+=(g++)
# Reports are opened in a real browser.
browser() {
  local program
  for program in chromium chromium-browser google-chrome; do
    command -v "$program" >/dev/null && return 0
  done
  return 1
}
[ "$(uname -s)" = Linux ] && ! browser && wanted+=(chromium)

# Stores of a team are on a real server; Debian keeps its programs off the PATH.
server() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
[ "$(uname -s)" = Linux ] && ! server && wanted+=(postgresql)

# Shell texts are checked with it.
[ "$(uname -s)" = Linux ] && ! command -v shellcheck >/dev/null && wanted+=(shellcheck)

[ -z "${wanted[*]-}" ] && exit 0 # macOS has bash 3.2, to which an empty array is none
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
  echo "note: install ${wanted[*]} to run every test; without it some are skipped"
  exit 0
fi
echo "== installing ${wanted[*]} for the tests"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null || timeout 300 apt-get update -qq >"$log" 2>&1
for _ in 1 2; do
  timeout 900 apt-get install -qq -y --no-install-recommends "${wanted[@]}" >"$log" 2>&1 && exit 0
  timeout 300 apt-get update -qq >>"$log" 2>&1
done
tail -3 "$log"
echo "note: ${wanted[*]} could not be installed; some tests are skipped without it"
