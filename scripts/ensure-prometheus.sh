#!/bin/sh
# Makes sure that prometheus and promtool are there, which make observe and the tests of the
# dashboards need. Debian's package is unpacked into .cache: it has a service.
#
# usage: scripts/ensure-prometheus.sh [--check]
set -eu
. "$(dirname "$0")/lib.sh"

if has prometheus promtool; then exit 0; fi
untested "${1:-}" "the dashboard and the alert rules (prometheus and promtool are not on PATH)" \
  "scripts/ensure-prometheus.sh fetches them on Debian and Ubuntu"
has apt-get dpkg-deb ||
  stop "prometheus and promtool are needed on PATH: https://prometheus.io/download, or the package manager of this system"

say "fetching the package prometheus"
dir=$root/.cache/prometheus
rm -rf "$dir"
mkdir -p "$bin"
apt_unpack "$dir" prometheus ||
  stop "that failed. As root, run: apt-get update; then again scripts/ensure-prometheus.sh"
# What its pages are made of: to look at, not needed by the tests.
unpack "$dir" apt-get download -q fonts-glyphicons-halflings libjs-bootstrap4 libjs-d3 libjs-eonasdan-bootstrap-datetimepicker \
  libjs-jquery libjs-jquery-hotkeys libjs-moment libjs-moment-timezone libjs-mustache libjs-popper.js libjs-rickshaw ||
  say "its pages will lack their scripts; everything else works"
for program in prometheus promtool; do
  ln -sf "$dir/usr/bin/$program" "$bin/$program"
  "$bin/$program" --version >/dev/null 2>&1 || stop "$program of the package does not run here"
done
say "$("$bin/prometheus" --version 2>&1 | head -n 1)"
