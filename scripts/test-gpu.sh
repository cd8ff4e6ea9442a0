#!/bin/bash
# Everything that takes a GPU to test: `make test-gpu`. Fails, never skips, where there is no GPU.
#
#   scripts/test-gpu.sh BUILD [SECTION...]    sections: problems sweep caching families sanitize python (all)
#
# BUILD is a build folder, here or from another machine. TCONV_PYTHON names a Python that has tconv, PyTorch and
# pytest already; else .venv is made.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

build=${1:?a build folder}
shift
sections=${*:-problems sweep caching families sanitize python}
check=$build/tests/cuda/gpu_check
[ -x "$check" ] || check=$build/gpu_check
failed=""

section() {
  printf '\n=== %s (%ds) ===\n' "$*" "$SECONDS"
}

# Small layers of every kernel family under one of compute-sanitizer's tools; each report fails it. Kernels come
# from the cache that `families` has filled: the tools slow kernels down, not the compiler. They leave most of the GPU
# idle, so every preference has a process of its own, which shows what it found when it is done.
sanitize() {
  section "compute-sanitizer $1"
  export tool=$1 check
  # shellcheck disable=SC2016
  "$check" preferences | xargs -P "$(nproc)" -I@ bash -c '
    log=$(GPU_CHECK_NAMES=1 compute-sanitizer --tool "$tool" --error-exitcode 1 "$check" families @ 2>&1)
    result=$?
    printf "== %s\n%s\n" @ "$log"
    exit $result'
}

python_tests() {
  python=${TCONV_PYTHON:-}
  if [ -z "$python" ]; then
    scripts/python-environment.sh || return
    python=.venv/bin/python
  fi
  "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "PyTorch does not see the GPU" >&2
    return 1
  }
  "$python" -m pytest -q -k "cuda or kernelbench or export" tests/python
}

# Random layers, of any kernel and then of every kind that can be asked for, each with a seed of its own.
sweeps() {
  "$check" sweep "${TCONV_SWEEP:-1000}" 1 && "$check" sweep 300 2 few || return
  local seed=2 kinds kind
  kinds=$("$check" preferences panels) || return
  for kind in $kinds; do
    TCONV_PREFER_PANELS=$kind "$check" sweep 200 $((seed += 1)) || return
  done
  TCONV_X_PHASES=2 "$check" sweep 150 101 && TCONV_PREFER_MARCH=1 "$check" sweep 200 102 &&
    TCONV_PREFER_HALVES=1 TCONV_PREFER_PANELS=1 "$check" sweep 200 103 &&
    TCONV_PREFER_DOUBLES=1 GPU_CHECK_MODES=fp64 "$check" sweep 200 104 &&
    TCONV_PREFER_PAIRS=1 TCONV_PREFER_PANELS=1 GPU_CHECK_MODES=fp16,bf16 "$check" sweep 300 105
}

run() {
  case $1 in
    problems) section "benchmark problems" && "$check" problems ;;
    sweep) section "random layers" && sweeps ;;
    caching) section "compiling and caching" && "$check" caching ;;
    families) section "kernel families" && "$check" families ;;
    sanitize) sanitize memcheck && sanitize racecheck ;;
    python) section "PyTorch front end" && python_tests ;;
    *) echo "no section '$1'" >&2 && return 2 ;;
  esac
}

for name in $sections; do
  run "$name" || failed="$failed $name"
done
section "${failed:+failed:}${failed:-all passed}"
[ -z "$failed" ]
