#!/bin/sh
# Makes sure that the comparison finds what people lock with besides libraries for
# Go on Redis: Redisson, etcd, ZooKeeper and MariaDB (go run ./bench -peers all).
#
# usage: scripts/ensure-peers.sh [--check]
#
# Everything lands in .cache and in bench/redisson/target; what is there already is
# left alone. etcd's server is built from the Go module proxy, Redisson comes from
# Maven Central. The packages of ZooKeeper and MariaDB are Debian's: they are
# fetched and unpacked, not installed, so that no service starts and nothing
# outside of this folder is touched. That needs no root, unless the package lists
# have to be fetched first. One that can't be had is named loudly and the others
# still count; the status is then 1. With --check nothing is fetched.
set -eu

. "$(dirname "$0")/lib.sh"
peers=$root/.cache/peers
bin=$peers/bin
check=${1:-}
failed=

missing() {
  printf '\n!!!! NOT THERE: %s\n\n' "$1" >&2
  failed=1
}

# unpack FOLDER PACKAGE: the package and what it needs that is not installed.
unpack() {
  has apt-get dpkg-deb || return 1
  dir=$peers/$1
  list=$(apt-get install -s -q --no-install-recommends "$2" 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
  if [ -z "$list" ]; then
    # Installed already, or unknown: the package alone then, or an error.
    list=$2
  fi
  rm -rf "$dir"
  mkdir -p "$dir/fetched"
  say "fetching the package $2 and what it needs"
  # shellcheck disable=SC2086 # a list
  (cd "$dir/fetched" && apt-get download -q $list </dev/null >&2) || return 1
  for package in "$dir/fetched"/*.deb; do
    dpkg-deb -x "$package" "$dir" || return 1
  done
  rm -rf "$dir/fetched"
}

# lists fetches the package lists where there are none.
lists() {
  if ! has apt-cache || apt-cache show "$1" >/dev/null 2>&1; then return 0; fi
  if [ "$(id -u)" -eq 0 ]; then
    apt-get update -q >&2 || true
  elif has sudo; then
    sudo apt-get update -q >&2 || true
  fi
}

has_redisson() {
  [ -f "$root/bench/redisson/target/classpath.txt" ] && [ -f "$root/bench/redisson/target/classes/redlatch/bench/Worker.class" ] &&
    [ -z "$(find "$root/bench/redisson/src" "$root/bench/redisson/pom.xml" -newer "$root/bench/redisson/target/classpath.txt")" ]
}
has_etcd() { [ -x "$bin/etcd" ]; }
has_zookeeper() { [ -f "$peers/zookeeper/usr/share/java/zookeeper.jar" ]; }
has_mariadb() { [ -x "$peers/mariadb/usr/sbin/mariadbd" ]; }

if [ "$check" = --check ]; then
  has_redisson || missing "Redisson (bench/redisson is not built)"
  has_etcd || missing "etcd"
  has_zookeeper || missing "ZooKeeper"
  has_mariadb || missing "MariaDB"
  [ -z "$failed" ] || { say "run scripts/ensure-peers.sh"; exit 1; }
  exit 0
fi

if ! has_redisson; then
  if "$root/scripts/ensure-java.sh"; then
    say "building bench/redisson"
    (cd "$root/bench/redisson" &&
      { mvn -q -B --offline compiler:compile dependency:build-classpath >/dev/null 2>&1 ||
        mvn -q -B compiler:compile dependency:build-classpath >&2; } </dev/null) || missing "Redisson: Maven failed"
  else
    missing "Redisson: no JDK or no Maven"
  fi
fi

if ! has_etcd; then
  say "building etcd's server"
  mkdir -p "$bin"
  (cd "$root/bench/systems/etcdserver" && GOWORK=off GOFLAGS= go build -o "$bin/etcd" go.etcd.io/etcd/server/v3) ||
    missing "etcd: its server can't be built"
fi

if ! has_zookeeper; then
  lists libzookeeper-java
  unpack zookeeper libzookeeper-java || missing "ZooKeeper: fetch Debian's package libzookeeper-java, or put its jars where this script looks"
fi

if ! has_mariadb; then
  lists mariadb-server-core
  unpack mariadb mariadb-server-core || missing "MariaDB: fetch Debian's package mariadb-server-core, or put it where this script looks"
fi

[ -z "$failed" ] || exit 1
