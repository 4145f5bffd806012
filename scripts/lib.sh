# What the scripts beside this file share. They source it: . "$(dirname "$0")/lib.sh"
#
# An ensure-*.sh makes sure that something is there which tests need, and does nothing where it
# is. Otherwise it installs Debian's package as root or through sudo, if that has no service, or
# unpacks it into .cache, which touches nothing else and needs no root, unless the package lists
# have to be fetched first. Elsewhere it stops with what to install. With --check it fetches
# nothing: it says loudly what will not be tested, and its status is 1, if something is missing.
# shellcheck shell=sh disable=SC2034 # root and bin are for them

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.cache/bin
PATH=$bin:$PATH

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# stop WHAT: ends the script with what is wrong.
stop() { say "$*"; exit 1; }

loudly() { printf '\n!!!! %s: %s.\n\n' "$1" "$2" >&2; }

# modules: the folders of the workspace's modules, the root first.
modules() { go work edit -json "$root/go.work" | sed -n 's/^[[:space:]]*"DiskPath": "\(.*\)".*/\1/p'; }

# has PROGRAM…: all of them are on PATH.
has() {
  for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 || return 1
  done
}

# untested FLAG WHAT REMEDY: what --check says of something that is missing, and the end then.
untested() {
  [ "$1" = --check ] || return 0
  loudly "NOT TESTED" "$2.
!!!! $3"
  exit 1
}

# as_root COMMAND…: as root or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else has sudo && sudo "$@"; fi
}

# apt_install PACKAGE…: the package lists are fetched first.
apt_install() {
  say "installing $*"
  as_root apt-get update -q >&2 &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" </dev/null >&2 ||
    { say "this failed. As root, run: apt-get install --no-install-recommends $*"; return 1; }
}

# unpack FOLDER COMMAND…: what an apt command downloads, unpacked and not installed.
unpack() {
  unpacked=$1
  shift
  rm -rf "$unpacked/debs"
  mkdir -p "$unpacked/debs"
  (cd "$unpacked/debs" && "$@" </dev/null >&2) || return 1
  for deb in "$unpacked/debs"/*.deb; do
    dpkg-deb -x "$deb" "$unpacked" || return 1
  done
  rm -rf "$unpacked/debs"
}

# apt_unpack FOLDER PACKAGE…: the packages, unpacked and not installed.
apt_unpack() {
  has apt-get dpkg-deb || return 1
  folder=$1
  shift
  unpack "$folder" apt-get download -q "$@" || { as_root apt-get update -q >&2 && unpack "$folder" apt-get download -q "$@"; }
}
