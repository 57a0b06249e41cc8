# `make demo` and `make test` need python3 (3.11 or newer) and a C compiler; without one: make demo EXTRAS=verify,zig
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= auto
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := $(shell find backend engine system -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' -o -name '*.h')

.PHONY: demo test test-avx2 lint format types docs site nightly fuzz fuzz-files sanitize bench wheel editors parser venv clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    set up, then optimize and compile a real model'
	@echo 'make test    set up, then run all tests, on all cores'
	@echo 'make test-avx2   the same as on a CPU that has AVX2 and nothing wider, where CPUID can fault (x86-64 Linux)'
	@echo 'make lint    set up, then style (ruff, rewrite fmt), types (mypy) and import contracts'
	@echo 'make docs    renew the generated parts of docs/'
	@echo 'make site    the documentation site, into build/site; a broken link fails'
	@echo 'make nightly check all rules, proofs included, score the checker, test kernels for Arm, inject faults, soak'
	@echo 'make fuzz    run random graphs of all operators, FIRST to LAST; failures go to build/fuzz'
	@echo 'make fuzz-files  damage bundles and caches at random, FIRST to LAST'
	@echo 'make sanitize kernels, random graphs and the C library, checked by the compiler while they run (gcc on Linux)'
	@echo 'make bench   set up, then measure against the peers; writes docs/measurements/benchmarks.md'
	@echo 'make wheel   build the wheels, of the compiler and of the runtime alone, into dist/'
	@echo 'make editors the VS Code extension and the tree-sitter grammar into dist/ (needs npm)'
	@echo 'make venv    the environment with everything for development, in $(VENV)'

# One stamp per set of extras: an environment made for the tests does not pull in torch.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml setup.py $(SOURCES) | $(BIN)/python
	$(PIP) --editable '.[$*]'
	@touch $@

EXTRAS ?= verify
demo: $(VENV)/.installed-$(EXTRAS)
	$(BIN)/python -m benchmarks.demo

test: $(VENV)/.installed-dev
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

# pytest's handler of faults would take those of CPUID for its own.
HIDING = $(CURDIR)/build/hide_avx512.so
test-avx2: $(VENV)/.installed-dev
	@grep -qw cpuid_fault /proc/cpuinfo || { echo 'CPUID cannot fault here (no flag cpuid_fault in /proc/cpuinfo)'; exit 2; }
	@mkdir -p build && $(CC) -O1 -shared -fPIC benchmarks/hide_avx512.c -o $(HIDING)
	LD_PRELOAD=$(HIDING) $(BIN)/pytest -p no:faulthandler -n $(JOBS) --dist worksteal $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/rewrite fmt --check rules examples
	! git grep -nIE -f .ci/phrases.txt -- '*.py' '*.md' '*.rules' '*.j2' '*.h' '*.pyx' '*.pxi' '*.lark' '*.toml' '*.txt' ':!.ci/phrases.txt' Makefile
	$(MAKE) --no-print-directory types
	cd build/types && PYTHONPATH=. "$$(realpath ../../$(BIN)/lint-imports)" --config ../../pyproject.toml --no-cache
	$(MAKE) --no-print-directory site

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/rewrite fmt rules examples

# mypy names a package after its folder; the link gives the checkout the package's name, whatever its own is.
types: $(VENV)/.installed-dev
	@mkdir -p build/types && ln -sfn ../.. build/types/rewrite
	mypy="$$(realpath $(BIN)/mypy)"; cd build/types && MYPYPATH=. "$$mypy" --config-file ../../pyproject.toml --package rewrite

# The parts of docs/ that are made from the code; a test fails when they are stale.
docs: $(VENV)/.installed-dev
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/operators.py

# Pages keep their places, so that the same links hold in the repository and on the site. Of the package only what the API
# page names is shown to the generator: it would read the environment, which lies inside the package's folder, as well.
PAGES := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs examples rules editors/vscode/README.md \
	editors/tree-sitter-rules/README.md
API := __init__.py api.py errors.py testing.py ort engine/__init__.py engine/optimizer.py engine/trails/__init__.py \
	engine/trails/trail.py backend/__init__.py backend/runtime/__init__.py backend/runtime/program.py
site: $(VENV)/.installed-dev
	@rm -rf build/pages build/api && mkdir -p build/pages build/api/rewrite
	@cp -r --parents $(PAGES) build/pages && cp -r --parents $(API) build/api/rewrite
	@find build/pages -name __pycache__ -prune -exec rm -r {} +
	$(BIN)/zensical build --strict
	$(BIN)/python docs/check_site.py build/site

# The oracles that take hours: every rule tested and proved, and the checker's score on rules of bug reports and on altered
# rules. And the tests that need PyTorch, which those of every change do not install.
nightly: $(VENV)/.installed-dev $(VENV)/.installed-bench
	@mkdir -p build
	$(BIN)/rewrite check rules/ --no-cache --json build/soundness.json
	$(BIN)/python -m tests.nightly.soundness_page build/soundness.json
	$(BIN)/rewrite check rules/ --no-cache --seed "$$(date +%Y%m%d)"
	$(BIN)/python -m tests.nightly.reported_rules
	$(BIN)/python -m tests.mutation --report docs/measurements/mutation.md
	$(BIN)/python -m pip install --quiet cython
	$(BIN)/python -m tests.nightly.emulated
	$(BIN)/python -m tests.nightly.injected_faults
	$(BIN)/python -m tests.nightly.soak
	$(BIN)/pytest -n $(JOBS) tests/torch_backend tests/frontends

FIRST ?= 0
LAST ?= 2000
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz $(FIRST) $(LAST)

fuzz-files: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz.stored_files $(FIRST) $(LAST)

# Code that checks addresses and undefined behaviour, of what is written only: kernels may read 64 bytes past a buffer. What
# it finds ends the process, so its message must not be captured with the test's output.
CHECKED = CC="gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined --param asan-instrument-reads=0" \
	LD_PRELOAD="$(shell gcc -print-file-name=libasan.so) $(shell gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 REWRITE_CACHE_DIR=build/sanitize
sanitize: $(VENV)/.installed-dev
	$(CHECKED) $(BIN)/pytest -n $(JOBS) --capture sys tests/backend/kernels --ignore tests/backend/kernels/test_machine_code.py $(ARGS)
	$(CHECKED) $(BIN)/python -m tests.fuzz $(FIRST) $(LAST)
	$(BIN)/pytest tests/backend/runtime/test_c_library.py -k 'overruns or races or altered or valgrind'

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.run $(ARGS)

wheel: $(BIN)/python
	rm -f dist/onnx_rewrite-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(BIN)/python -m distribution.runtime_wheel dist/onnx_rewrite-*.whl

# npm is needed here only; the extension's own dependency, the client library of VS Code, ends up inside the package.
VSCE ?= @vscode/vsce@4
editors: $(BIN)/python
	rm -rf build/editors && mkdir -p build/editors dist
	cp -r editors/vscode build/editors && cp LICENSE build/editors/vscode
	cd build/editors/vscode && rm -rf node_modules && npm install --omit=dev --no-audit --no-fund
	cd build/editors/vscode && npx --yes $(VSCE) package --allow-missing-repository --out ../rewrite-rules.vsix
	$(BIN)/python -m tests.editors.package_contents build/editors/rewrite-rules.vsix
	cp build/editors/rewrite-rules.vsix dist
	tar --exclude-vcs -C editors -czf dist/tree-sitter-rules.tar.gz tree-sitter-rules

# After a change of grammar.js. Editors compile the generated parser, so it is committed; a test compares the checksums.
TREE_SITTER ?= tree-sitter
parser:
	cd editors/tree-sitter-rules && $(TREE_SITTER) generate --no-bindings && sha256sum grammar.js > src/grammar.js.sha256
	cd editors/tree-sitter-rules/src && rm -f node-types.json tree_sitter/alloc.h tree_sitter/array.h

venv: $(VENV)/.installed-bench $(VENV)/.installed-dev

clean:
	rm -rf build dist *.egg-info
