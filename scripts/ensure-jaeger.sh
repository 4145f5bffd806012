#!/bin/sh
# Makes sure that a Jaeger is there, which make observe shows the spans in and a test asks
# for the queries of otel/dashboards/traces.md.
#
# usage: scripts/ensure-jaeger.sh [--check]
#
# It is version 2, built into .cache from its sources: Go's module proxy has them, up to the version
# below. That takes ten minutes or more on two cores, and two gigabytes. Its pages are no Go module:
# they are built by npm from their repository, where git, npm and the repository can be had
# (JAEGER_UI names another place of it); without them Jaeger answers its API alone.
set -eu
. "$(dirname "$0")/lib.sh"
dir=$root/.cache/jaeger
version=v1.76.0 # of the module; the program in it is Jaeger 2.13

has jaeger || untested "${1:-}" "the queries of traces.md in a Jaeger (none is on PATH)" "scripts/ensure-jaeger.sh builds one: ten minutes or more"
[ "${1:-}" != --check ] || exit 0

build() {
  say "fetching the sources of Jaeger ($version)"
  mkdir -p "$dir" "$bin"
  # "go install" refuses a module that replaces others: it is built where it is the main one.
  module=$(cd "$dir" && GOWORK=off GOFLAGS= go mod download -json "github.com/jaegertracing/jaeger@$version" |
    sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p')
  rm -rf "$dir/src"
  cp -R "$module" "$dir/src"
  chmod -R u+w "$dir/src"
  say "building it, which takes some minutes"
  (cd "$dir/src" && GOWORK=off GOFLAGS=-mod=mod go build -trimpath -ldflags '-s -w' -o "$dir/jaeger" ./cmd/jaeger)
  rm -rf "$dir/src"
}

pages() {
  has git npm || return 1
  say "building its pages, which takes some minutes"
  rm -rf "$dir/ui"
  git clone -q --depth 1 -b "$version" "${JAEGER_UI:-https://github.com/jaegertracing/jaeger-ui}" "$dir/ui" >&2 || return 1
  (
    cd "$dir/ui"
    # Their scripts would set up a developer's checkout; and a Node that is older than they ask for does.
    npm ci --no-audit --no-fund --ignore-scripts --engine-strict=false
    npm run --workspace @jaegertracing/plexus prepublishOnly
    cd packages/jaeger-ui
    NODE_ENV=production REACT_APP_VSN_STATE='{}' ../../node_modules/.bin/vite build
  ) >&2 || return 1
  rm -rf "$dir/pages"
  mv "$dir/ui/packages/jaeger-ui/build" "$dir/pages"
  rm -rf "$dir/ui"
}

if ! has jaeger; then
  [ -x "$dir/jaeger" ] || build
  ln -sf "$dir/jaeger" "$bin/jaeger"
  "$bin/jaeger" version >/dev/null
fi
if [ -x "$dir/jaeger" ] && [ ! -f "$dir/pages/index.html" ]; then
  pages || say "its pages could not be built: it answers its API, and shows nothing"
fi
