#!/bin/sh
# Checks otel/dashboards/redlatch.json against what Grafana publishes of its format, the types of
# the npm package @grafana/schema: the dashboard, and the options of its panels.
#
# usage: otel/dashboards/check-dashboard.sh [file]
#
# Needs node and npm; the packages go into .cache/grafana.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$root/.cache/grafana
file=${1:-$root/otel/dashboards/redlatch.json}

command -v npm >/dev/null 2>&1 || {
  echo "check-dashboard: node and npm are needed on PATH" >&2
  exit 1
}
mkdir -p "$dir"
if [ ! -f "$dir/ready" ]; then
  (cd "$dir" && npm install --no-audit --no-fund --no-save --prefix "$dir" \
    @grafana/schema@13.2.3 ts-json-schema-generator@2 ajv@8) >&2
  touch "$dir/ready"
fi
cp "$root/otel/dashboards/check-dashboard.mjs" "$dir/check.mjs"
(cd "$dir" && node check.mjs "$file")
