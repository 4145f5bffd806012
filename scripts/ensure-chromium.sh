#!/bin/sh
# Makes sure that a Chromium is there, in which the tests look at the pages of
# redlatch serve.
#
# usage: scripts/ensure-chromium.sh [--check]
#
# Does nothing where chromium, chromium-browser, google-chrome or headless-shell
# is on PATH, or REDLATCH_CHROMIUM names a program. On Debian it installs the
# package chromium otherwise, as root or through sudo: it has no service. Elsewhere
# it stops with what to install. With --check it installs nothing: it says loudly
# what will not be tested, and its status is 1, when there is none.
set -eu

say() { printf 'ensure-chromium: %s\n' "$*" >&2; }

present() {
  case ${REDLATCH_CHROMIUM:-require} in require) ;; *) return 0 ;; esac
  for program in chromium chromium-browser google-chrome headless-shell; do
    if command -v "$program" >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

if present; then exit 0; fi

if [ "${1:-}" = --check ]; then
  printf '\n!!!! NOT TESTED: the pages of redlatch serve (no chromium is on PATH).\n' >&2
  printf '!!!! scripts/ensure-chromium.sh installs it on Debian.\n\n' >&2
  exit 1
fi

if ! command -v apt-get >/dev/null 2>&1; then
  say "chromium is needed on PATH: install it with the package manager of this system, or name it in REDLATCH_CHROMIUM"
  exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    say "as root, run: apt-get install --no-install-recommends chromium"
    exit 1
  fi
  as_root=sudo
fi

say "installing the package chromium"
$as_root apt-get update -q >&2
# Fonts with the usual characters: without any, pages have boxes for letters.
if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
  chromium fonts-dejavu-core </dev/null >&2 && present; then
  exit 0
fi
say "no package of this system has it (on Ubuntu it is a snap): install it yourself, or name it in REDLATCH_CHROMIUM"
exit 1
