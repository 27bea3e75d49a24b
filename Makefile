# `make` prints the verbs. Variables: JOBS, BUILD (folder), ARGS (for run), DTORCH_TORCH_DIR (a LibTorch you have),
# DTORCH_DEPS_DIR (where make deps puts one), CMAKE_ARGS.
JOBS ?= 2
BUILD ?= build
CMAKE_ARGS ?=
TARGETS ?=
ARGS ?=
FUZZ_SECONDS ?= 60
export DTORCH_TORCH_DIR DTORCH_DEPS_DIR
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1

# Separates no arguments of $(call ...).
comma := ,

SOURCES = $(shell git ls-files -co --exclude-standard '*.cc' '*.h')
CTEST_ARGS ?=
# One more than cores: the longest tests mostly wait.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)
CTEST = ctest --test-dir $(1) --output-on-failure --no-tests=error -j $(TEST_JOBS) --output-junit junit.xml $(CTEST_ARGS)

.PHONY: help deps deps_cuda deps_cuda_run gpu_check ensure_deps build run test check check_operators lint format_check bench asan tsan fuzz format clean
.DEFAULT_GOAL := help

help:
	@echo 'make deps     install what is missing (Debian packages as root; LibTorch into a folder of the user)'
	@echo 'make deps_cuda  what the CUDA backend is built from, where no toolkit is; make deps_cuda_run: what LibTorch needs on a GPU'
	@echo 'make build    build everything into $(BUILD)/, programs into $(BUILD)/bin/'
	@echo 'make run      build, then train a small Llama on the King James text with mpirun -np 3, and generate from it'
	@echo 'make test     build and run the tests'
	@echo 'make check    what CI runs: format check, lint, build with warnings as errors, tests'
	@echo 'make check_operators  every operator on every tuple of placements (--full); takes long'
	@echo 'make bench    run every benchmark; JSON lines in $(BUILD)/bench.jsonl'
	@echo 'make gpu_check  on a machine with a GPU: its tests and benchmarks, and a report (docs/gpu_nodes.md)'
	@echo 'make asan     the tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan     the tests of the build without kernels under ThreadSanitizer'
	@echo 'make fuzz     every fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) (libFuzzer)'
	@echo 'make format   clang-format over all sources'
	@echo 'make clean    remove $(BUILD)/'
	@echo 'Variables: JOBS=$(JOBS) BUILD=$(BUILD) CMAKE_ARGS= DTORCH_TORCH_DIR= DTORCH_DEPS_DIR='

deps:
	@scripts/deps.sh build

deps_cuda:
	@scripts/deps.sh cuda

deps_cuda_run:
	@scripts/deps.sh cuda_run

gpu_check:
	@scripts/gpu_check.sh $(ARGS)

ensure_deps:
	@scripts/deps.sh --check build || scripts/deps.sh build

# $(call configure_and_build,folder,options,build options): Ninja when there; CMake's own words only when it fails.
define configure_and_build
	@mkdir -p $(1)
	@cmake -S . -B $(1) $$(command -v ninja > /dev/null && test ! -e $(1)/Makefile && echo -G Ninja) $(2) \
	  $(if $(DTORCH_TORCH_DIR),-DDTORCH_TORCH_DIR=$(DTORCH_TORCH_DIR)) $(CMAKE_ARGS) > $(1)/configure.log 2>&1 \
	  || { cat $(1)/configure.log; exit 1; }
	cmake --build $(1) -j $(JOBS) $(3)
endef

build: ensure_deps
	$(call configure_and_build,$(BUILD),,$(if $(TARGETS),--target $(TARGETS)))

run: build
	scripts/run_kjv.sh $(BUILD) $(ARGS)

test: build
	$(call CTEST,$(BUILD))

check: format_check lint test

check_operators: build
	$(BUILD)/bin/check_operators --full --json --jobs $(JOBS)

format_check:
	@command -v clang-format > /dev/null || scripts/deps.sh check
	@clang-format --dry-run -Werror $(SOURCES) && echo 'format: clean'

lint:
	@python3 scripts/lint.py

bench: build
	@scripts/bench.sh $(BUILD)

asan: ensure_deps
	$(call configure_and_build,$(BUILD)/asan,-DDTORCH_SANITIZE=address$(comma)undefined)
	$(call CTEST,$(BUILD)/asan)

tsan: ensure_deps
	$(call configure_and_build,$(BUILD)/tsan,-DDTORCH_KERNELS=none -DDTORCH_SANITIZE=thread -DDTORCH_BENCH=OFF)
	$(call CTEST,$(BUILD)/tsan)

fuzz: ensure_deps
	@scripts/deps.sh --check fuzz || scripts/deps.sh fuzz
	$(call configure_and_build,$(BUILD)/fuzz,-DDTORCH_KERNELS=none -DDTORCH_FUZZ=ON -DDTORCH_SANITIZE=address -DDTORCH_BENCH=OFF -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_C_COMPILER=clang-16,--target fuzzers)
	@scripts/fuzz.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

format:
	@command -v clang-format > /dev/null || scripts/deps.sh check
	clang-format -i $(SOURCES)

clean:
	rm -rf $(BUILD)
