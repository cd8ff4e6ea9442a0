# The two commands of the README, and the checks CI adds to them. Everything is built by CMake; this file
# only makes a fresh machine ready and names the usual ways to call it.
#
#   make run      build, then verify and time four KernelBench layers on this machine
#   make test     build, then run all tests, those of the PyTorch front end in a virtual environment
#   make test-gpu  build, then run what takes a GPU to test; fails where there is none
#   make exported  write the exported layers under kernelbench/ again
#   make bench-cpu  time tconv beside PyTorch on this machine's CPU, all problems, with a table, JSON and a plot
#   make bench-gpu  the same on the GPU
#   make install  build, then install (PREFIX=/usr/local)
#   make format   lay out the sources with clang-format

BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
WERROR ?= OFF
CTEST_FLAGS ?=

packages := cmake ninja-build g++ pkg-config libhwy-dev libgtest-dev libfmt-dev libcli11-dev nlohmann-json3-dev
sources = $(shell git ls-files -co --exclude-standard '*.cpp' '*.hpp' '*.c' '*.h' '*.inc' 'src/cuda/kernels/*.cuh')

.PHONY: all run test test-gpu exported bench-cpu bench-gpu configure build install packages format check-format check-python check-address check-thread clean
.DEFAULT_GOAL := all
all: build

packages:
	@scripts/install-packages.sh $(packages)

configure: packages
	@cmake -S . -B $(BUILD) -G Ninja -D CMAKE_BUILD_TYPE=Release -D TCONV_WERROR=$(WERROR) --log-level=WARNING

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

# The tool alone: the tests take longer to build than it.
run: configure
	@cmake --build $(BUILD) -j $(JOBS) --target tconv_cli
	@$(BUILD)/tconv bench --mission --pass forward,backward

# The tests that compile kernels take CUDA's run-time compiler from where scripts/nvrtc.sh finds it.
test: build
	@nvrtc=$$(scripts/nvrtc.sh) && TCONV_NVRTC_PATH="$$nvrtc" \
	  ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS) $(CTEST_FLAGS)
	@WERROR=$(WERROR) scripts/test-pytorch.sh

# A test holds these against what `tconv export` writes.
exported: build
	@for problem in kb64 kb74 kb79 kb81; do \
	  $(BUILD)/tconv export $$problem --precision tf32 --output kernelbench/exported/$$problem.py || exit; \
	done

test-gpu: build
	@scripts/test-gpu.sh $(BUILD)

bench-cpu: packages
	@scripts/python-environment.sh
	@.venv/bin/python -m pip --disable-pip-version-check --quiet install matplotlib
	@.venv/bin/python bench/cpu.py --json bench/results/cpu.json
	@.venv/bin/python bench/plot.py bench/results/cpu.json docs/images/cpu.svg

bench-gpu: build
	@scripts/python-environment.sh
	@.venv/bin/python -m pip --disable-pip-version-check --quiet install matplotlib
	@.venv/bin/python bench/gpu/bench.py --library $(BUILD)/libtconv.so --json bench/results/gpu.json
	@.venv/bin/python bench/plot.py bench/results/gpu.json docs/images/gpu.svg

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

format:
	@scripts/install-packages.sh clang-format
	@clang-format -i $(sources)

check-format:
	@scripts/install-packages.sh clang-format
	@clang-format --dry-run -Werror $(sources)

# The Python sources; `make test` has made the environment.
check-python:
	@.venv/bin/python -m ruff check .
	@.venv/bin/python -m ruff format --check .

# AddressSanitizer and UndefinedBehaviorSanitizer over the tests, but for those that need many gigabytes, those
# whose time is NVRTC's or that of emulated kernels, which are compiled without (random layers take the same way
# through the host), and the repeats of the random sweep on lesser instruction sets, which `make test` has run:
# minutes, for the same code. -O1 builds fast and runs fast enough.
check-address: packages
	@cmake -S . -B $(BUILD)-address -G Ninja -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O1 \
	  -D TCONV_SANITIZE=address,undefined -D TCONV_WERROR=$(WERROR) --log-level=WARNING
	@cmake --build $(BUILD)-address -j $(JOBS)
	@ctest --test-dir $(BUILD)-address --output-on-failure --no-tests=error -LE "large|nvrtc|emulation" -E "^sweep_" -j $(JOBS) $(CTEST_FLAGS)

# ThreadSanitizer over the tests that run plans from many threads, those with the label "concurrency".
check-thread: packages
	@cmake -S . -B $(BUILD)-thread -G Ninja -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG=-O1 \
	  -D TCONV_SANITIZE=thread -D TCONV_BUILD_CLI=OFF -D TCONV_WERROR=$(WERROR) --log-level=WARNING
	@cmake --build $(BUILD)-thread -j $(JOBS) --target test_concurrency test_thread_pool
	@ctest --test-dir $(BUILD)-thread --output-on-failure --no-tests=error -L concurrency $(CTEST_FLAGS)

clean:
	@rm -rf $(BUILD) $(BUILD)-address $(BUILD)-thread build-python
