# The front door. CMake with Ninja is the one build (CMakePresets.json); this file only names the
# things people do. Variables: JOBS=2 (parallel jobs), CMAKE_FLAGS=-DWEFT_TESTS=OFF (taken when a
# build folder is configured for the first time), PREFIX and DESTDIR (install), CTEST_FLAGS,
# BENCH_FLAGS and CHECK_FLAGS (see tools/bench --help and tools/check-formats --help).

PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
CMAKE_FLAGS ?=
CTEST_FLAGS ?=
BENCH_FLAGS ?=
CHECK_FLAGS ?=

# Configure a preset once (Ninja reruns CMake by itself when something changed) and build it.
build_preset = test -f $(1)/build.ninja || cmake --preset $(2) $(CMAKE_FLAGS); \
	cmake --build --preset $(2) -j $(JOBS)
test_preset = ctest --preset $(1) -j $(JOBS) $(CTEST_FLAGS)

# The thread sanitizer of older compilers cannot live with wide address randomisation.
no_aslr = $$(setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: all setup demo test bench lint install clean debug asan tsan fuzz random sim torture check-aarch64 \
	check-formats docs help

all:
	@command -v cmake >/dev/null && command -v ninja >/dev/null || \
		{ echo "cmake or ninja is missing: make setup" >&2; exit 1; }
	@set -e; $(call build_preset,build,release)

setup:
	@tools/setup

# The demo needs the command alone, not the tests. A run that was stopped resumes; one that is complete starts over.
demo: setup
	@set -e; test -f build/build.ninja || cmake --preset release $(CMAKE_FLAGS); \
	cmake --build --preset release -j $(JOBS) --target weft_cli
	@test ! -f build/demo/complete || rm -rf build/demo
	@printf '%s\n' '' 'weft launch examples/fashion_mnist.yaml --ps 2 --workers 2' '' \
		'A chief, two parameter servers and two workers train a convolutional net.' \
		'Kill one of them from another terminal, and see what happens:' \
		"    pkill -9 -f -- '--task ps/1 '    (or worker/0, worker/1, ps/0, chief/0)" ''
	@build/bin/weft launch examples/fashion_mnist.yaml --ps 2 --workers 2 --set log.dir=$(CURDIR)/build/demo \
		--set checkpoint.dir=$(CURDIR)/build/demo/checkpoints && touch build/demo/complete

test: setup
	@$(MAKE) --no-print-directory all
	@$(call test_preset,release)

bench: all
	@tools/setup bench
	@cmake --build --preset release -j $(JOBS) --target bench-programs
	@tools/bench train $(BENCH_FLAGS)
	@tools/bench data $(BENCH_FLAGS)

lint:
	@tools/lint

install: all
	@cmake --install build --prefix "$(PREFIX)"

debug:
	@set -e; $(call build_preset,build-debug,debug); $(call test_preset,debug)

asan:
	@set -e; $(call build_preset,build-asan,asan); $(call test_preset,asan)

tsan:
	@set -e; $(call build_preset,build-tsan,tsan); $(no_aslr) $(call test_preset,tsan)

fuzz:
	@set -e; $(call build_preset,build-fuzz,fuzz); $(call test_preset,fuzz)

check-aarch64:
	@set -e; $(call build_preset,build-aarch64,aarch64)

# Random graphs and models: make random SEEDS=0:1000000 JOBS=8
SEEDS ?= 0:100000
random:
	@set -e; $(call build_preset,build,release); cd build/test; \
	./bin/test-random-graphs --seeds $(SEEDS) --jobs $(JOBS); ./bin/test-random-models --seeds $(SEEDS)

# Simulated jobs with faults: make sim SEEDS=1000000
sim:
	@set -e; $(call build_preset,build,release); build/test/bin/test-sim --seeds $(SEEDS) --jobs $(JOBS)

# Launched jobs whose processes are killed and stopped: make torture N=1000, SEED=1
torture: all
	@N=$(or $(N),100) $(if $(SEED),SEED=$(SEED)) SRC="$(CURDIR)" BUILD="$(CURDIR)/build" WEFT="$(CURDIR)/build/bin/weft" test/cli/torture.sh

check-formats: all
	@cmake --build --preset release -j $(JOBS) --target format-programs
	@tools/check-formats $(CHECK_FLAGS)

# docs/reference from the library's tables, and the headers as HTML where Doxygen is installed.
docs:
	@set -e; test -f build/build.ninja || cmake --preset release $(CMAKE_FLAGS); \
	cmake --build --preset release -j $(JOBS) --target tool-reference; \
	build/tools/reference docs/reference; echo "docs/reference is up to date"; \
	if command -v doxygen >/dev/null; then \
		mkdir -p build/docs; doxygen docs/Doxyfile; echo "the headers are in build/docs/html/index.html"; \
	else echo "doxygen is missing, no HTML of the headers: tools/setup docs"; fi

clean:
	rm -rf build build-debug build-asan build-tsan build-fuzz build-aarch64

help:
	@echo "make                 build the release into build/ (bin/weft, lib/libweft.{so,a})"
	@echo "make setup           install the Debian packages that are missing"
	@echo "make demo            setup, build, train a convolutional net on a small cluster of processes"
	@echo "make test            setup, build, run every test"
	@echo "make bench           run the benchmarks and compare with other frameworks"
	@echo "make lint            formatting, static checks, layers, headers"
	@echo "make install         into PREFIX (default /usr/local), below DESTDIR if set"
	@echo "make asan tsan debug build that preset and run its tests"
	@echo "make random          random graphs and models, SEEDS=FROM:TO JOBS=N"
	@echo "make torture         launched jobs whose processes are killed and stopped, N=kills SEED=N"
	@echo "make sim             simulated jobs with faults, SEEDS=N or FROM:TO JOBS=N"
	@echo "make fuzz            search for new failing inputs with libFuzzer (clang)"
	@echo "make check-aarch64   compile the library for aarch64"
	@echo "make check-formats   files of weft read by TensorFlow and NumPy, and theirs by weft"
	@echo "make docs            write docs/reference, and the headers as HTML into build/docs/html"
	@echo "make clean           remove the build folders"
