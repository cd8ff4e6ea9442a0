#!/bin/sh
# Makes .venv, the virtual environment everything from PyPI goes into, where it is not there yet.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
"$python" -c 'import ensurepip, venv' 2>/dev/null || scripts/install-packages.sh python3 python3-venv
if [ ! -x .venv/bin/python ]; then
  "$python" -m venv --system-site-packages .venv
fi
