#!/bin/sh
# Makes sure that the tests find a Redis server program.
#
# usage: scripts/ensure-redis.sh
#
# Does nothing where redis-server or valkey-server is on PATH, or
# REDLATCH_TEST_SERVER names a program. On Debian and Ubuntu it installs one
# otherwise, as root or through sudo; elsewhere it stops with the command to run.
#
# No system service is installed, started or touched: the program is the one
# that Debian ships in redis-tools under the name redis-check-rdb (it is one
# binary, which looks at its name). The package redis-server would add only a
# link and a service that starts at once. The link is made here instead, in
# .cache/bin, which the Makefile puts on PATH.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.cache/bin
PATH=$bin:$PATH

say() { printf 'ensure-redis: %s\n' "$*" >&2; }

if [ -n "${REDLATCH_TEST_SERVER:-}" ] ||
  command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1; then
  exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
  say "the tests need redis-server or valkey-server on PATH. Install it with:"
  case $(uname -s) in
    Darwin) say "  brew install redis" ;;
    *)
      if command -v dnf >/dev/null 2>&1; then
        say "  sudo dnf install valkey"
      elif command -v apk >/dev/null 2>&1; then
        say "  apk add redis"
      elif command -v pacman >/dev/null 2>&1; then
        say "  sudo pacman -S valkey"
      elif command -v zypper >/dev/null 2>&1; then
        say "  sudo zypper install redis"
      else
        say "  the package manager of this system (package redis or valkey)"
      fi
      ;;
  esac
  exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    say "the tests need redis-server. As root, run: apt-get install redis-tools; then again make test"
    exit 1
  fi
  as_root=sudo
fi

# link PROGRAM NAME: makes NAME in .cache/bin if PROGRAM is a server by that name.
link() {
  program=$(command -v "$1") || return 1
  mkdir -p "$bin"
  ln -sf "$program" "$bin/$2"
  if "$bin/$2" --version </dev/null 2>/dev/null | grep -qi 'server v='; then
    say "$2 is $program"
    return 0
  fi
  rm -f "$bin/$2"
  return 1
}

if link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; then
  exit 0
fi
say "installing redis-tools, which holds the server program"
$as_root apt-get update -q >&2
for package in redis-tools valkey-tools; do
  if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$package" </dev/null >&2; then
    if link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; then
      exit 0
    fi
  fi
done
say "no package of this system holds the server. Install redis-server or valkey-server yourself and run make test again"
exit 1
