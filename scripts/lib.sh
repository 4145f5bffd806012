# What the scripts beside this file share. They source it: . "$(dirname "$0")/lib.sh"
# shellcheck shell=sh disable=SC2034 # root and bin are for them

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.cache/bin
PATH=$bin:$PATH

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# has PROGRAM…: all of them are on PATH.
has() {
  for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 || return 1
  done
}

# untested WHAT REMEDY: what --check says, and ends the script with, where something is missing.
untested() {
  printf '\n!!!! NOT TESTED: %s.\n!!!! %s.\n\n' "$1" "$2" >&2
  exit 1
}

# become_root REMEDY: sets as_root to what a command of root's begins with, or ends the script with what to do.
become_root() {
  as_root=
  if [ "$(id -u)" -ne 0 ]; then
    has sudo || { say "$1"; exit 1; }
    as_root=sudo
  fi
}

# apt_install PACKAGE…: as root or through sudo; the package lists are fetched first.
apt_install() {
  become_root "as root, run: apt-get install --no-install-recommends $*"
  say "installing $*"
  $as_root apt-get update -q >&2
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null >&2
}
