#!/bin/sh
# Checks the form of the code in every module: gofmt, go.work.sum, go vet, builds for Linux,
# macOS and Windows, golangci-lint and govulncheck.
#
# usage: scripts/lint.sh
#
# Where one of the last two can't be had, that is said loudly and the rest still counts.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"
modules=$(modules)
skipped=

skip() {
  loudly "NOT CHECKED" "$1"
  skipped="$skipped
  not checked: $1"
}

# tool PROGRAM VERSION PACKAGE: installs it, unless that version is there.
tool() {
  echo "== $1 $2"
  if go version -m "$bin/$1" 2>/dev/null | grep -q "^[[:space:]]mod[[:space:]].*[[:space:]]$2[[:space:]]"; then return 0; fi
  GOBIN=$bin GOFLAGS='' GOWORK=off go install "$3@$2" || { skip "$1: $2 can't be installed here"; return 1; }
}

echo "== gofmt"
unformatted=$(find . -name .cache -prune -o -name '*.go' -exec gofmt -l {} +)
[ -z "$unformatted" ] || stop "not formatted (run gofmt -w):
$unformatted"

# The go command notes the sum of each go.mod that it reads. "go doc" and "go list -m all" read all of the graph, so a sum
# that is missing here would be a changed file in the clone of whoever asks for documentation.
echo "== go.work.sum is complete"
before=$(cksum <go.work.sum)
! go list -m all >/dev/null || [ "$before" = "$(cksum <go.work.sum)" ] || stop "go.work.sum was incomplete; it is complete now: commit it"

for os in linux darwin windows; do
  echo "== go build and go vet for $os"
  for module in $modules; do
    (cd "$module" && GOOS=$os GOARCH=amd64 CGO_ENABLED=0 go build ./... && GOOS=$os GOARCH=amd64 CGO_ENABLED=0 go vet ./...)
  done
done

if tool golangci-lint v2.15.0 github.com/golangci/golangci-lint/v2/cmd/golangci-lint; then
  for module in $modules; do
    (cd "$module" && "$bin/golangci-lint" run --config "$root/.golangci.yaml" ./...)
  done
fi

if tool govulncheck v1.9.0 golang.org/x/vuln/cmd/govulncheck; then
  for module in $modules; do
    status=0
    (cd "$module" && "$bin/govulncheck" ./...) || status=$?
    case $status in
      0) ;;
      3) stop "govulncheck found vulnerabilities in $module" ;; # its status for those that were found
      *)
        skip "govulncheck: no vulnerability database, or it failed (status $status in $module)"
        break
        ;;
    esac
  done
fi

printf '\n== lint passed%s\n' "$skipped"
