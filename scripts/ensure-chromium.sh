#!/bin/sh
# Makes sure that a Chromium is there, in which the tests look at the pages of redlatch serve: on
# PATH, or the program that REDLATCH_CHROMIUM names. Debian's package has no service.
#
# usage: scripts/ensure-chromium.sh [--check]
set -eu
. "$(dirname "$0")/lib.sh"

present() {
  case ${REDLATCH_CHROMIUM:-require} in require) ;; *) return 0 ;; esac
  has chromium || has chromium-browser || has google-chrome || has headless-shell
}

if present; then exit 0; fi
untested "${1:-}" "the pages of redlatch serve (no chromium is on PATH)" "scripts/ensure-chromium.sh installs it on Debian"
# Fonts with the usual characters: without any, pages have boxes for letters.
if has apt-get && apt_install chromium fonts-dejavu-core && present; then exit 0; fi
stop "chromium is needed on PATH: install it with the package manager of this system (on Ubuntu it is a snap), or name it in REDLATCH_CHROMIUM"
