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
SEMVER_CHECKS_VERSION = 0.51.0
MLX_EXTRA ?= $$(test "$$(uname -s)" = Darwin || echo '[cpu]')
OPENBLAS_WHEEL = $$(test "$$(uname -s)" = Darwin || echo 'scipy-openblas32==$(OPENBLAS_VERSION)')

.PHONY: help vendor venv venv-test build bench-ops develop stubs support run test test-fast lint fuzz wheel clean \
	test-features semver test-packages hostile programs asan tsan ubsan miri valgrind \
	macos-wheel macos-check macos-check-if-cached arm64-test metal-check metal-tools accelerate-check accelerate-quick mac-report

help:
	@echo 'make run        build, train LeNet-5 on both devices, print the overhead table'
	@echo 'make test       every test'
	@echo 'make test-packages  timm, transformers, torchvision and others with Lucid in the place of PyTorch (docs/porting.md)'
	@echo 'make test-features  the Rust crate without MLX, with every feature, and as docs.rs builds it'
	@echo 'make semver     is the Rust interface one that its version allows? BASELINE=v0.1.0, a tag or a commit'
	@echo 'make test-fast  the Rust tests and the quick Python ones'
	@echo 'make develop    an incremental build of the extension, in place; slower kernels'
	@echo 'make bench-ops  every op beside PyTorch, and what became slower than recorded'
	@echo 'make lint       rustfmt, clippy, ruff, mypy'
	@echo 'make fuzz       the targets of fuzz/ under libFuzzer, SECONDS=60 each'
	@echo 'make hostile    every public callable with hostile arguments, SECONDS=3600 JOBS=2 SEED=0 (docs/reliability.md)'
	@echo 'make programs   random programs beside PyTorch, SECONDS=3600 JOBS=2 SEED=0'
	@echo 'make asan, tsan, ubsan, miri, valgrind  the tests of memory, threads and undefined behaviour'
	@echo 'make wheel      a wheel in dist/'
	@echo 'make macos-wheel  a wheel for macOS arm64 in dist/, built on Linux (docs/macos.md)'
	@echo 'make macos-check  lints, tests compiled and declarations checked for macOS arm64, on Linux'
	@echo 'make metal-check  Metal kernels compiled and run on Linux, and which of MLX'\''s exist'
	@echo 'make accelerate-check  the CPU device over what stands in for Accelerate, on Linux'
	@echo 'make mac-report  on a Mac: build, tests and benchmarks in one file, mac-report.json'
	@echo 'make arm64-test  the Rust tests on Linux arm64, emulated; PARTS=pages those on 16 KiB pages alone, PARTS=python SHARE=1/8'
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
	$(PIP) maturin==1.16.0 "mlx$(MLX_EXTRA)==$(MLX_VERSION)" $(OPENBLAS_WHEEL) numpy==2.4.6 ruff==0.17.6 mypy==2.4.1 \
		pytest==9.2.0 pytest-xdist==3.8.0 hypothesis==6.170.15
	touch $@

# The digits that the examples learn, progress bars, pictures, and what TensorBoard reads.
$(VENV)/.examples: $(VENV)/.tools
	$(PIP) scikit-learn==1.9.1 tqdm==4.70.1 matplotlib==3.11.2 tensorboardX==2.6.5
	touch $@

# PyTorch is what the tests compare with; scipy, einops, tensorboard and onnx what they run beside it. Nothing else needs them.
$(VENV)/.test: $(VENV)/.examples
	$(PIP) torch==2.15.0 scipy==1.17.1 einops==0.8.2 tensorboard==2.21.0 transformers==5.23.0 gguf==0.19.0 \
		peft==0.21.2 openai==3.54.0 onnx==1.23.2 ml_dtypes==0.6.0 coremltools==9.0
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

# The loop of one who changes an op: an incremental build, for seconds after a change. Not for timings.
develop: vendor venv
	$(CARGO) build --profile develop --package lucid-py
	@$(BIN)/python py/tools/develop.py --profile develop

# Every op beside PyTorch, quickly, and what became slower than recorded: a report, which differs from machine to machine.
bench-ops: build
	-PYTHONPATH=py $(BIN)/python bench/ops.py --quick --check bench/ops_baseline.json

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

# The Python tests run in two processes, since most compute on one core; PROCESSES=0 runs them in one. Those of emulated
# kernels end with a test that asks which of them ran, in its own process: those of packages run beside them.
PROCESSES = 2
PYTEST = $(BIN)/python -m pytest -q --numprocesses $(PROCESSES) --dist worksteal

# Every test there is; cargo's are the doc tests too, of which every op has one. The Rust example learns what
# examples/digits.py writes.
test: lint venv-test macos-check-if-cached metal-tools accelerate-quick
	$(CARGO) test --release --workspace
	$(PYTEST) tests/python --ignore tests/python/metal_emulator
	$(BIN)/python -m pytest -q tests/python/metal_emulator > $(BUILT)/emulator.log 2>&1 & emulator=$$!; \
		$(BIN)/python -m pytest -q tests/packages; packages=$$?; \
		wait $$emulator; emulator=$$?; cat $(BUILT)/emulator.log; exit $$((packages + emulator))
	$(BIN)/python examples/digits.py
	$(BUILT)/examples/lenet --device gpu --epochs 2 --json
	$(BUILT)/embed gpu

# Packages from PyPI, unmodified, with Lucid in PyTorch's place: installed into target/packages, without dependencies.
test-packages: build venv-test
	$(BIN)/python -m pytest -q tests/packages

# The crate without MLX, with every feature, its documentation as docs.rs builds it, and its packages. In a folder of its own,
# since features make other builds.
FEATURES = CARGO_TARGET_DIR=target/features $(CARGO)
test-features: vendor
	MLX_DIR=/nonexistent $(FEATURES) test --no-default-features --package lucid --test without_gpu
	$(FEATURES) test --package lucid --features image,llm --doc data::
	DOCS_RS=1 RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS='--cfg docsrs -D warnings' MLX_DIR=/nonexistent OPENBLAS_DIR=/nonexistent \
		$(FEATURES) doc --no-deps --package lucid --features image,llm
	$(FEATURES) package --no-verify --allow-dirty --package mlx-ffi --package lucid-core --package lucid-rows --package lucid-ir --package lucid-fft \
		--package lucid-cpu --package lucid-mlx --package lucid-derive --package lucid

# Is the Rust interface one that its version allows? Beside a tag or a commit: the newest tag, the commit before where
# there is none.
BASELINE ?= $$(git describe --tags --abbrev=0 2>/dev/null || git rev-parse HEAD~1)
semver: vendor
	@$(CARGO) semver-checks --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-semver-checks@$(SEMVER_CHECKS_VERSION)
	DOCS_RS=1 $(CARGO) semver-checks --package lucid --package lucid-core --package lucid-ir --baseline-rev $(BASELINE)

# The loop while working, without PyTorch.
test-fast: build
	$(CARGO) test --release --package lucid --tests
	$(PYTEST) tests/python/unit

lint: build
	$(CARGO) fmt --all --check
	$(BIN)/python tools/format_rows.py --check
	$(CARGO) clippy --quiet --release --workspace --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/python py/tools/stubs.py --check
	$(BIN)/python py/tools/support.py --check
	$(BIN)/python tools/docstrings.py
	$(BIN)/python tools/words.py
	cd py && ../$(BIN)/mypy

# Bytes that libFuzzer makes, for the engine's functions that read sizes, views, indices and files.
SECONDS = 60
fuzz: vendor venv
	$(BIN)/python tools/fuzz.py --seconds $(SECONDS)

# Attacks from outside, for an hour unless said otherwise; reports lie in target/ (docs/reliability.md).
JOBS = 2
SEED = 0
hostile programs: SECONDS = 3600
hostile: build
	$(BIN)/python -m tests.python.hostile --seconds $(SECONDS) --jobs $(JOBS) --seed $(SEED) --report target/hostile-report.txt

programs: build venv-test
	$(BIN)/python -m tests.python.fuzz programs --seconds $(SECONDS) --jobs $(JOBS) --seed $(SEED) \
		--report target/programs-report.txt

# With the nightly toolchain where there is one (rustup toolchain install nightly -c rust-src -c miri), else with valgrind;
# Miri has no other: it says so. The share of the sweep takes five minutes.
asan tsan ubsan miri valgrind: build
	$(BIN)/python tools/sanitize.py $@

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

metal-check: build
	$(BIN)/python tools/metal/check.py

# What the tests in tests/python/metal_emulator need, some 140 MB from PyPI. Without a way there they skip, and say so.
metal-tools: vendor
	@if test "$$(uname -sm)" = 'Linux x86_64'; then $(BIN)/python tools/metal/check.py fetch || \
	echo 'The tests of Metal kernels are left to `make metal-check`: their compiler could not be fetched.'; fi

# The CPU device's code for Accelerate, over a library with its names (tools/accelerate): all of it, or the CPU crate alone.
accelerate-check: build venv-test
	$(BIN)/python tools/accelerate/check.py

accelerate-quick: build
	@if test "$$(uname -s)" = Linux; then $(BIN)/python tools/accelerate/check.py quick; fi

# On a Mac: one file to send. Elsewhere a rehearsal. It builds and installs itself, so that it tells what fails there.
mac-report: $(VENV)/.made
	$(BIN)/python tools/mac_report.py

# PARTS: plain, accelerate, pages, all three unless said otherwise; and python, SHARE=1/8 of it.
PARTS =
SHARE = 1/1
arm64-test: vendor
	$(BIN)/python tools/cross/arm64.py $(PARTS) --share $(SHARE)

clean:
	$(CARGO) clean
	rm -rf dist $(VENV)
