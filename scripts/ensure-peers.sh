#!/bin/sh
# Makes sure that the comparison finds what people lock with besides libraries for Go on Redis:
# Redisson, etcd, ZooKeeper and MariaDB (go run ./bench -peers all).
#
# usage: scripts/ensure-peers.sh [--check]
#
# etcd's server is built from the Go module proxy, Redisson comes from Maven Central, the packages
# of ZooKeeper and MariaDB are unpacked. One that can't be had is named loudly and the others still
# count; the status is then 1.
set -eu
. "$(dirname "$0")/lib.sh"
peers=$root/.cache/peers
redisson=$root/bench/redisson
failed=

has_redisson() {
  [ -f "$redisson/target/classpath.txt" ] && [ -f "$redisson/target/classes/redlatch/bench/Worker.class" ] &&
    [ -z "$(find "$redisson/src" "$redisson/pom.xml" -newer "$redisson/target/classpath.txt")" ]
}
get_redisson() {
  "$root/scripts/ensure-java.sh" && cd "$redisson" &&
    { mvn -q -B --offline compiler:compile dependency:build-classpath >/dev/null 2>&1 ||
      mvn -q -B compiler:compile dependency:build-classpath >&2; } </dev/null &&
    touch target/classpath.txt # Maven leaves it as it is where it would write the same
}

has_etcd() { [ -x "$peers/bin/etcd" ]; }
get_etcd() {
  mkdir -p "$peers/bin" && cd "$root/bench/systems/etcdserver" &&
    GOWORK=off GOFLAGS='' go build -o "$peers/bin/etcd" go.etcd.io/etcd/server/v3
}

# debian FOLDER PACKAGE: the package and what it needs that is not installed; if it is, it alone.
debian() {
  has apt-get apt-cache || return 1
  apt-cache show "$2" >/dev/null 2>&1 || as_root apt-get update -q >&2 || true
  list=$(apt-get install -s -q --no-install-recommends "$2" 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
  rm -rf "${peers:?}/$1"
  # shellcheck disable=SC2086 # a list
  apt_unpack "$peers/$1" ${list:-$2}
}

has_zookeeper() { [ -f "$peers/zookeeper/usr/share/java/zookeeper.jar" ]; }
get_zookeeper() { debian zookeeper libzookeeper-java; }

has_mariadb() { [ -x "$peers/mariadb/usr/sbin/mariadbd" ]; }
get_mariadb() { debian mariadb mariadb-server-core; }

for peer in redisson etcd zookeeper mariadb; do
  if "has_$peer"; then continue; fi
  if [ "${1:-}" = --check ]; then
    why="scripts/ensure-peers.sh fetches it"
  else
    say "fetching $peer"
    if ("get_$peer"); then continue; fi
    why="it can't be fetched or built here: put it where this script looks"
  fi
  loudly "NOT THERE" "$peer ($why)"
  failed=1
done
[ -z "$failed" ]
