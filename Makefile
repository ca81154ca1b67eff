# The commands of the project; `make help` lists them. Everything goes through scripts/setup first, which takes a
# tenth of a second when there is nothing to do.
SHELL := /bin/bash
.DEFAULT_GOAL := all
JOBS ?= $(shell nproc)
NINJA := ninja -C build/release -j $(JOBS)

.PHONY: all help setup configure everything quickstart test unit conformance bench format tidy clean

all: configure ## bin/atelier and bin/atelier-vision
	@$(NINJA) atelier atelier-vision
	@mkdir -p bin && ln -sfn ../build/release/bin/atelier bin/atelier && ln -sfn ../build/release/bin/atelier-vision bin/atelier-vision

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## packages, Python environments and weights, for building, running and testing
	@scripts/setup build run test

configure:
	@scripts/setup build
	@[ -f build/release/build.ninja ] || cmake --preset release

everything: all
	@$(NINJA)

quickstart: all ## sets up, builds, trains on 60,000 real pictures and shows what came out
	@scripts/setup run
	@scripts/quickstart

test: setup ## all tests: unit, conformance with real clients, a shortened quickstart
	@scripts/run-tests

unit: setup ## the C++ tests alone
	@scripts/run-tests build unit

conformance: setup ## the tests with real clients alone, the long ones and 200 kills too
	@scripts/run-tests build conformance long kills

bench: all ## every target that has a benchmark, beside its peer
	@scripts/setup bench
	@for id in $$(bench/run --list | cut -d' ' -f1); do bench/run $$id --keep; done

format: ## clang-format over our C++
	@tools/format

tidy: configure ## clang-tidy over the files that differ from main (FILES="..." for others)
	@tools/tidy $(FILES)

clean: ## removes build/ and bin/ (not data, caches or environments)
	rm -rf build bin
