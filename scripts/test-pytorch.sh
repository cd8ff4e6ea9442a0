#!/bin/sh
# The tests of the PyTorch front end, in an environment of their own. Where no PyTorch can be had they are
# skipped, which is said; TCONV_REQUIRE_PYTORCH=1 makes that a failure.
set -eu
cd "$(dirname "$0")/.."

status=0
scripts/python-environment.sh || status=$?
if [ "$status" = 3 ]; then
  echo "PyTorch tests skipped" >&2
  [ "${TCONV_REQUIRE_PYTORCH:-0}" != 1 ]
  exit
fi
[ "$status" = 0 ] || exit "$status"
.venv/bin/python -m pytest "$@"
