#!/bin/sh
# Checks the form of the code in every module: gofmt, go.work.sum, go vet, builds for Linux,
# macOS and Windows, golangci-lint and govulncheck.
#
# usage: scripts/lint.sh
#
# The last two are installed into .cache/bin. Where one can't be had (no module
# proxy, no vulnerability database) that is said loudly and the rest still counts.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
bin=$root/.cache/bin
golangci=v2.15.0
govulncheck=v1.9.0

modules=$(scripts/modules.sh)
skipped=

skip() {
  printf '\n!!!! NOT CHECKED: %s\n\n' "$1" >&2
  skipped="$skipped
  not checked: $1"
}

echo "== gofmt"
unformatted=$(find . -name .cache -prune -o -name '*.go' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
  printf 'not formatted (run gofmt -w):\n%s\n' "$unformatted" >&2
  exit 1
fi

# The go command notes the sum of each go.mod that it reads. "go doc" and "go list -m all" read all of the graph, so a sum
# that is missing here would be a changed file in the clone of whoever asks for documentation.
echo "== go.work.sum is complete"
before=$(cksum <go.work.sum)
if go list -m all >/dev/null && [ "$before" != "$(cksum <go.work.sum)" ]; then
  echo "go.work.sum was incomplete; it is complete now: commit it" >&2
  exit 1
fi

for os in linux darwin windows; do
  echo "== go build and go vet for $os"
  for module in $modules; do
    (cd "$module" && GOOS=$os GOARCH=amd64 CGO_ENABLED=0 go build ./... && GOOS=$os GOARCH=amd64 CGO_ENABLED=0 go vet ./...)
  done
done

echo "== golangci-lint $golangci"
if [ "v$("$bin/golangci-lint" version --short 2>/dev/null || true)" != "$golangci" ]; then
  GOBIN=$bin GOFLAGS= GOWORK=off go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$golangci" ||
    skip "golangci-lint: $golangci can't be installed here"
fi
if [ "v$("$bin/golangci-lint" version --short 2>/dev/null || true)" = "$golangci" ]; then
  for module in $modules; do
    (cd "$module" && "$bin/golangci-lint" run --config "$root/.golangci.yaml" ./...)
  done
fi

echo "== govulncheck $govulncheck"
if [ ! -x "$bin/govulncheck" ] &&
  ! GOBIN=$bin GOFLAGS= GOWORK=off go install "golang.org/x/vuln/cmd/govulncheck@$govulncheck"; then
  skip "govulncheck: $govulncheck can't be installed here"
else
  for module in $modules; do
    status=0
    (cd "$module" && "$bin/govulncheck" ./...) || status=$?
    case $status in
      0) ;;
      3) # its status for vulnerabilities that were found
        echo "govulncheck found vulnerabilities in $module" >&2
        exit 1
        ;;
      *)
        skip "govulncheck: no vulnerability database, or it failed (status $status in $module)"
        break
        ;;
    esac
  done
fi

printf '\n== lint passed%s\n' "$skipped"
