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
. "$(dirname "$0")/lib.sh"

present() {
  case ${REDLATCH_CHROMIUM:-require} in require) ;; *) return 0 ;; esac
  has chromium || has chromium-browser || has google-chrome || has headless-shell
}

if present; then exit 0; fi
[ "${1:-}" != --check ] ||
  untested "the pages of redlatch serve (no chromium is on PATH)" "scripts/ensure-chromium.sh installs it on Debian"
if has apt-get; then
  # Fonts with the usual characters: without any, pages have boxes for letters.
  if apt_install chromium fonts-dejavu-core && present; then exit 0; fi
fi
say "chromium is needed on PATH: install it with the package manager of this system (on Ubuntu it is a snap), or name it in REDLATCH_CHROMIUM"
exit 1
