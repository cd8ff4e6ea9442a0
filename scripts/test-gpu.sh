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
preferences="TCONV_NO_WGMMA PANELS=1 2 turned split loaders phases runs mapped once shifts beside clusters turned_clusters
  mapped_clusters MARCH PAIRS DOUBLES none"
sanitize() {
  section "compute-sanitizer $1"
  export tool=$1 check
  # shellcheck disable=SC2016,SC2086
  printf '%s\n' $preferences | xargs -P "$(nproc)" -I@ bash -c '
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

run() {
  case $1 in
    problems) section "benchmark problems" && "$check" problems ;;
    sweep) section "random layers" && "$check" sweep "${TCONV_SWEEP:-1000}" 1 && "$check" sweep 300 1 few &&
      TCONV_PREFER_PANELS=turned "$check" sweep 200 3 && TCONV_X_PHASES=2 "$check" sweep 150 4 &&
      TCONV_PREFER_PANELS=joined "$check" sweep 200 5 && TCONV_PREFER_PANELS=turns "$check" sweep 200 6 &&
      TCONV_PREFER_PANELS=split "$check" sweep 200 7 && TCONV_PREFER_HALVES=1 TCONV_PREFER_PANELS=1 "$check" sweep 200 8 &&
      TCONV_PREFER_PANELS=loaders "$check" sweep 200 9 && TCONV_PREFER_PANELS=runs "$check" sweep 200 10 &&
      TCONV_PREFER_PANELS=2 "$check" sweep 200 11 &&
      TCONV_PREFER_MARCH=1 "$check" sweep 200 12 && TCONV_PREFER_PANELS=once "$check" sweep 200 13 &&
      TCONV_PREFER_PANELS=mapped "$check" sweep 200 14 && TCONV_PREFER_PANELS=clusters "$check" sweep 200 15 &&
      TCONV_PREFER_PANELS=turned_clusters "$check" sweep 200 16 &&
      TCONV_PREFER_PANELS=mapped_clusters "$check" sweep 200 19 && TCONV_PREFER_PANELS=phases "$check" sweep 200 17 &&
      TCONV_PREFER_PANELS=shifts "$check" sweep 200 18 && TCONV_PREFER_PANELS=beside "$check" sweep 200 20 &&
      TCONV_PREFER_DOUBLES=1 GPU_CHECK_MODES=fp64 "$check" sweep 200 21 &&
      TCONV_PREFER_PAIRS=1 TCONV_PREFER_PANELS=1 GPU_CHECK_MODES=fp16,bf16 "$check" sweep 300 22 && TCONV_PREFER_PANELS=1 "$check" sweep 300 2 ;;
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
