# What a person types. `make run` and `make test` set up all they need; the rest are their parts.
# Plain POSIX make and tools: works with GNU make and with macOS's.

PYTHON ?= python3
CARGO ?= cargo
# The oldest macOS that MLX's wheel runs on; other systems take no notice.
MACOSX_DEPLOYMENT_TARGET ?= 14.0
export MACOSX_DEPLOYMENT_TARGET
VENV = .venv
BIN = $(VENV)/bin

# The flavour of MLX: on Linux several wheels share one path, so one is chosen (mlx[cpu], mlx[cuda13], mlx[cuda12]).
MLX_VERSION = 0.32.2
OPENBLAS_VERSION = 0.3.34.481.3
MLX_EXTRA ?= $$(test "$$(uname -s)" = Darwin || echo '[cpu]')
OPENBLAS_WHEEL = $$(test "$$(uname -s)" = Darwin || echo 'scipy-openblas32==$(OPENBLAS_VERSION)')

.PHONY: help vendor venv venv-test build stubs support run test test-fast lint fuzz wheel clean \
	macos-wheel macos-check macos-check-if-cached arm64-test

help:
	@echo 'make run        build, train LeNet-5 on both devices, print the overhead table'
	@echo 'make test       every test'
	@echo 'make test-fast  the Rust tests and the quick Python ones'
	@echo 'make lint       rustfmt, clippy, ruff, mypy'
	@echo 'make fuzz       the targets of fuzz/ under libFuzzer, SECONDS=60 each'
	@echo 'make wheel      a wheel in dist/'
	@echo 'make macos-wheel  a wheel for macOS arm64 in dist/, built on Linux (docs/macos.md)'
	@echo 'make macos-check  lints, tests compiled and declarations checked for macOS arm64, on Linux'
	@echo 'make arm64-test  the Rust tests on Linux arm64, emulated'
	@echo 'make vendor     fetch the prebuilt parts (MLX, OpenBLAS, libclang) into vendor/'
	@echo 'make venv       the virtual environment in .venv/'
	@echo 'make clean      remove what was built; fetched parts stay'

# --- setting up -------------------------------------------------------------------------------------------------------

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

$(VENV)/.tools: $(VENV)/.made Makefile
	$(PIP) 'maturin>=1.9,<2' "mlx$(MLX_EXTRA)==$(MLX_VERSION)" $(OPENBLAS_WHEEL) numpy ruff mypy pytest hypothesis
	touch $@

# The digits that the examples learn, progress bars, pictures, and what TensorBoard reads.
$(VENV)/.examples: $(VENV)/.tools
	$(PIP) scikit-learn tqdm matplotlib tensorboardX
	touch $@

# PyTorch is what the tests compare with; nothing else needs it.
$(VENV)/.test: $(VENV)/.examples
	$(PIP) torch
	touch $@

venv: $(VENV)/.tools

venv-test: $(VENV)/.test

# Quick when all is in place: the fetcher keeps stamps. `cargo fetch` brings mlx-c's source, which no build downloads.
vendor: $(VENV)/.made
	@$(BIN)/python vendor/fetch.py
	@$(CARGO) fetch --quiet

# --- building and testing ---------------------------------------------------------------------------------------------

build: vendor venv
	$(CARGO) build --release --workspace
	@$(BIN)/python py/tools/develop.py

# The stubs of lucid._C, from the module that was built.
stubs:
	$(BIN)/python py/tools/stubs.py

# The table of what works where, docs/support.md.
support: build
	$(BIN)/python py/tools/support.py

run: build $(VENV)/.examples
	$(BIN)/python examples/lenet.py --device cpu
	$(BIN)/python examples/lenet.py --device gpu
	$(BIN)/python bench/lenet_overhead.py --device gpu

# Where cargo puts what it builds. Its `run` would compile the engine again, for one package instead of all.
BUILT = $${CARGO_TARGET_DIR:-target}/release

# Every test there is; cargo's are the doc tests too, of which every op has one. The Rust example learns what
# examples/digits.py writes.
test: lint venv-test macos-check-if-cached
	$(CARGO) test --release --workspace
	$(BIN)/python -m pytest -q tests/python
	$(BIN)/python examples/digits.py
	$(BUILT)/examples/lenet --device gpu --epochs 2 --json
	$(BUILT)/embed gpu

# The loop while working, without PyTorch.
test-fast: build
	$(CARGO) test --release --package lucid --tests
	$(BIN)/python -m pytest -q tests/python/unit

lint: build
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --release --workspace --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/python py/tools/stubs.py --check
	$(BIN)/python py/tools/support.py --check
	cd py && ../$(BIN)/mypy

# Bytes that libFuzzer makes, for the engine's functions that read sizes, views, indices and files.
SECONDS = 60
fuzz: vendor venv
	$(BIN)/python tools/fuzz.py --seconds $(SECONDS)

# The stubs come from the built module, so that is built first.
wheel: build
	$(BIN)/maturin build --release --out dist --manifest-path py/Cargo.toml

# --- other machines, from Linux (docs/macos.md) -----------------------------------------------------------------------

# The stubs come from this machine's own build: they are the same.
macos-wheel: build
	$(BIN)/python tools/cross/macos.py wheel

macos-check: vendor
	$(BIN)/python tools/cross/macos.py check

macos-check-if-cached: vendor
	@if test "$$(uname -s)" = Darwin; then :; \
	elif $(BIN)/python tools/cross/macos.py cached; then $(BIN)/python tools/cross/macos.py check; \
	else echo 'The check for macOS is left to `make macos-check`, which sets up what it needs.'; fi

arm64-test: vendor
	$(BIN)/python tools/cross/arm64.py

clean:
	$(CARGO) clean
	rm -rf dist $(VENV)
