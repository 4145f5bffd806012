#!/bin/sh
# Makes sure that the tests find a Redis server program: redis-server or valkey-server on PATH, or
# the one that REDLATCH_TEST_SERVER names.
#
# usage: scripts/ensure-redis.sh [--optional]
#
# With --optional (make demo) nothing fails: REDIS_URL names a server, or a program is found, or the
# caller does without. It is installed only with REDIS=install.
# Debian ships the program in redis-tools under the name redis-check-rdb (it looks at its name); the
# package redis-server would add only a link, which is made here, and a service that starts at once.
set -eu
. "$(dirname "$0")/lib.sh"

optional=${1:-}
[ -z "$optional" ] || [ -z "${REDIS_URL:-}" ] || exit 0

# without REASON: the caller does without, if it can.
without() {
  [ -n "$optional" ] || stop "$1"
  say "no redis-server here; the demo takes a slower server of its own ($1)"
  exit 0
}

if [ -n "${REDLATCH_TEST_SERVER:-}" ] || has redis-server || has valkey-server; then exit 0; fi

# link PROGRAM NAME: makes NAME in .cache/bin if PROGRAM is a server by that name.
link() {
  program=$(command -v "$1") && mkdir -p "$bin" && ln -sf "$program" "$bin/$2" || return 1
  if "$bin/$2" --version </dev/null 2>/dev/null | grep -qi 'server v='; then
    say "found $1, which is $2 by another name"
    return 0
  fi
  rm -f "$bin/$2"
  return 1
}
linked() { link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; }

if linked; then exit 0; fi
[ -z "$optional" ] || [ "${REDIS:-}" = install ] || without "make demo REDIS=install installs one"
has apt-get || without "install redis-server or valkey-server with the package manager of this system (macOS: brew install redis)"

for package in redis-tools valkey-tools; do
  if apt_install "$package" && linked; then exit 0; fi
done
without "no package of this system holds the server, or it can't be installed now: install redis-server or valkey-server yourself"
