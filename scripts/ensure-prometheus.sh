#!/bin/sh
# Makes sure that prometheus and promtool are there, which make observe and the
# tests of the dashboards need.
#
# usage: scripts/ensure-prometheus.sh [--check]
#
# Does nothing where both are on PATH. On Debian and Ubuntu it fetches the package
# prometheus otherwise and unpacks it into .cache: it is not installed, so that
# no service starts and nothing outside this folder is touched. It needs no root,
# unless the package lists have to be fetched first. Elsewhere it stops with what
# to install. With --check it fetches nothing: it says loudly what will not be
# tested, and its status is 1, when something is missing.
set -eu
. "$(dirname "$0")/lib.sh"

if has prometheus promtool; then exit 0; fi
[ "${1:-}" != --check ] ||
  untested "the dashboard and the alert rules (prometheus and promtool are not on PATH)" \
    "scripts/ensure-prometheus.sh fetches them on Debian and Ubuntu"
has apt-get dpkg-deb || {
  say "prometheus and promtool are needed on PATH: https://prometheus.io/download, or the package manager of this system"
  exit 1
}

say "fetching the package prometheus"
dir=$root/.cache/prometheus
rm -rf "$dir"
mkdir -p "$dir" "$bin"
fetch() { (cd "$dir" && apt-get download -q "$@" </dev/null >&2); }
if ! fetch prometheus; then
  become_root "the package lists are missing. As root, run: apt-get update; then again scripts/ensure-prometheus.sh"
  $as_root apt-get update -q >&2
  fetch prometheus
fi
# What its pages are made of: to look at, not needed by the tests.
fetch fonts-glyphicons-halflings libjs-bootstrap4 libjs-d3 libjs-eonasdan-bootstrap-datetimepicker libjs-jquery \
  libjs-jquery-hotkeys libjs-moment libjs-moment-timezone libjs-mustache libjs-popper.js libjs-rickshaw ||
  say "its pages will lack their scripts; everything else works"
for package in "$dir"/*.deb; do
  dpkg-deb -x "$package" "$dir"
done
rm -f "$dir"/*.deb
for program in prometheus promtool; do
  ln -sf "$dir/usr/bin/$program" "$bin/$program"
  "$bin/$program" --version >/dev/null 2>&1 || { say "$program of the package does not run here"; exit 1; }
done
say "$("$bin/prometheus" --version 2>&1 | head -n 1)"
