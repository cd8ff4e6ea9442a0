#!/bin/sh
# Prints what TCONV_NVRTC_PATH must be for the tests to find NVRTC, CUDA's run-time compiler: nothing where tconv
# finds one by itself (a toolkit, the loader's path), else the folder of the package from PyPI, installed into
# .venv. The compiler needs no GPU.
#
# Where none can be had the tests that compile kernels are skipped, in one line; TCONV_REQUIRE_NVRTC=1 makes that
# a failure.
set -eu
cd "$(dirname "$0")/.."

package=nvidia-cuda-nvrtc==13.0.88

if [ -n "${TCONV_NVRTC_PATH:-}" ]; then
  echo "$TCONV_NVRTC_PATH"
  exit
fi
for folder in "${CUDA_HOME:-}/lib64" "${CUDA_PATH:-}/lib64" /usr/local/cuda/lib64; do
  for library in "$folder"/libnvrtc.so.1[23]*; do
    if [ -e "$library" ]; then exit; fi
  done
done
if { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libnvrtc\.so\.1[23]'; then exit; fi

installed() {
  find .venv/lib/python3*/site-packages/nvidia -name 'libnvrtc.so.1[23]' 2>/dev/null | head -n 1
}
library=$(installed)
if [ -z "$library" ]; then
  scripts/virtual-environment.sh >&2
  .venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps "$package" >/dev/null 2>&1 || true
  library=$(installed)
fi
if [ -n "$library" ]; then
  dirname "$PWD/$library"
elif [ "${TCONV_REQUIRE_NVRTC:-0}" = 1 ]; then
  echo "NVRTC is required, but there is none here, and $package could not be installed" >&2
  exit 1
else
  echo "tests of the CUDA kernels skipped: there is no NVRTC here, and $package could not be installed" >&2
fi
