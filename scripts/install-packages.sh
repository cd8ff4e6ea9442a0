#!/bin/sh
# Makes sure the Debian packages named on the command line are there: installs those that are missing where
# it may (root and apt), else says exactly what to install. TCONV_NO_INSTALL=1 leaves the machine alone.
set -eu

if [ "${TCONV_NO_INSTALL:-0}" = 1 ]; then
  exit 0
fi
if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "note: this is not a Debian system; tconv needs what these Debian packages hold: $*" >&2
  exit 0
fi

missing=""
for package in "$@"; do
  case $(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true) in
    *installed*) ;;
    *) missing="$missing $package" ;;
  esac
done
if [ -z "$missing" ]; then
  exit 0
fi

if [ "$(id -u)" != 0 ]; then
  echo "These Debian packages are missing. Install them, then call make again:" >&2
  echo "    sudo apt-get install --no-install-recommends$missing" >&2
  echo "(If you have their contents from elsewhere: TCONV_NO_INSTALL=1 make ...)" >&2
  exit 1
fi

echo "installing Debian packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
install_missing() {
  # shellcheck disable=SC2086  # one word per package
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
# The package lists of a fresh machine are empty, those of an old one out of date: update, where that helps.
install_missing 2>/dev/null || { apt-get update -qq && install_missing; }
