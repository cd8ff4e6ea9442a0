#!/bin/sh
# Makes .venv ready for the PyTorch front end and installs tconv into it. Uses a PyTorch that is already there,
# in .venv or in the Python it is made from; installs the CPU build of one exact version otherwise, since an
# open requirement downloads gigabytes of CUDA libraries.
#
# Says so and exits with 3 where no PyTorch can be had.
set -eu
cd "$(dirname "$0")/.."

torch=2.13.0+cpu
venv=.venv

scripts/virtual-environment.sh
pip() { $venv/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

has_torch() {
  $venv/bin/python -c '
import sys, torch
sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10))' 2>/dev/null
}
if ! has_torch; then
  # First from where pip is set up to look, then from where PyTorch keeps its CPU builds.
  pip install "torch==$torch" 2>/dev/null ||
    pip install "torch==$torch" --retries 1 --index-url https://download.pytorch.org/whl/cpu 2>/dev/null || true
  has_torch || {
    echo "there is no PyTorch here, and version $torch could not be installed" >&2
    exit 3
  }
fi

pip install numpy pytest ruff "scikit-build-core>=0.10"
pip install --no-build-isolation --no-deps --config-settings=cmake.define.TCONV_WERROR="${WERROR:-OFF}" .
