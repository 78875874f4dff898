"""The C API: a program in C that uses each function, the exported symbols, and the header as the ABI of version 1."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lucid
import lucid.lightning as lc
import pytest

ROOT = Path(lucid.__file__).resolve().parents[2]
HEADER = ROOT / "engine/capi/include/lightning_core.h"
NAME = "liblightning_core.dylib" if sys.platform == "darwin" else "liblightning_core.so"

SYMBOLS = [
    "lcApplyDefaultSyncPolicy",
    "lcApplySyncPolicy",
    "lcBackendName",
    "lcDeviceSynchronize",
    "lcFree",
    "lcGetActiveBackendCapabilities",
    "lcGetActiveBackendInterfaceContract",
    "lcGetBackendCapabilities",
    "lcGetBackendInterfaceContract",
    "lcGetDefaultSyncPolicy",
    "lcGetDeviceCount",
    "lcGetErrorString",
    "lcGetMemoryModel",
    "lcGetMemoryModelName",
    "lcGetPreferredDeviceForInference",
    "lcGetPreferredDeviceForTraining",
    "lcIsCudaAvailable",
    "lcIsMetalAvailable",
    "lcMalloc",
    "lcMemcpy",
    "lcSetDefaultSyncPolicy",
]


@pytest.fixture(scope="module")
def library() -> Path:
    """The library that cargo built last."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [folder / profile / NAME for profile in ("release", "develop")]
    there = [path for path in built if path.exists()]
    if not there:
        pytest.fail("the C library is not built: `cargo build --release -p lucid-capi`")
    return max(there, key=lambda path: path.stat().st_mtime)


def test_the_header_declares_the_functions() -> None:
    assert len(SYMBOLS) == 21
    assert sorted(set(re.findall(r"\b(lc\w+)\(", HEADER.read_text()))) == sorted(SYMBOLS)


@pytest.mark.skipif(sys.platform != "linux", reason="nm as of GNU binutils")
def test_the_exported_symbols_are_frozen(library: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert {s for s in exported if s.startswith("lc")} == set(SYMBOLS)


PROGRAM = r"""
#include "lightning_core.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The ABI of version 1. */
_Static_assert(LC_ABI_VERSION == 1, "version");
_Static_assert(sizeof(lcBackendCapabilities) == 40, "capabilities");
_Static_assert(sizeof(lcBackendInterfaceContract) == 24, "contract");
_Static_assert(lcErrorUnknown == 5 && lcBackendCuda == 2 && lcSyncNever == 2 && lcMemcpyDeviceToDevice == 3, "values");

static void *work(void *nothing) {
  for (int i = 0; i < 500; i++) {
    void *p = NULL;
    char bytes[100], back[100];
    memset(bytes, i, 100);
    assert(lcMalloc(&p, 100) == lcSuccess);
    assert(lcMemcpy(p, bytes, 100, lcMemcpyHostToDevice) == lcSuccess);
    assert(lcMemcpy(back, p, 100, lcMemcpyDeviceToHost) == lcSuccess);
    assert(memcmp(bytes, back, 100) == 0);
    assert(lcFree(p) == lcSuccess);
  }
  return nothing;
}

int main(void) {
  int32_t count = -1;
  assert(lcGetDeviceCount(lcBackendCpu, &count) == lcSuccess && count == 1);
  assert(lcGetDeviceCount(7, &count) == lcErrorInvalidValue && count == 1);
  assert(lcGetDeviceCount(lcBackendCpu, NULL) == lcErrorInvalidValue);

  lcBackendCapabilities c, active;
  assert(lcGetActiveBackendCapabilities(&active) == lcSuccess);
  for (lcBackend b = lcBackendCpu; b <= lcBackendCuda; b++) {
    assert(lcGetBackendCapabilities(b, &c) == lcSuccess && c.backend == b && c.compute == 1);
    assert(lcGetDeviceCount(b, &count) == lcSuccess && count == c.available);
    lcBackendInterfaceContract contract;
    assert(lcGetBackendInterfaceContract(b, &contract) == lcSuccess);
    assert(contract.backend == b && contract.version == 1 && contract.memory & lcMemoryResident);
  }
  assert(lcGetBackendCapabilities(-1, &c) == lcErrorInvalidValue);
  assert(lcGetBackendCapabilities(lcBackendCpu, NULL) == lcErrorInvalidValue);
  assert(lcGetBackendInterfaceContract(3, NULL) == lcErrorInvalidValue);
  lcBackendInterfaceContract contract;
  assert(lcGetActiveBackendInterfaceContract(&contract) == lcSuccess && contract.backend == active.backend);
  assert(lcGetPreferredDeviceForInference() == active.backend);
  assert(lcGetPreferredDeviceForTraining() == active.backend);
  assert(lcIsMetalAvailable() == (active.backend == lcBackendMetal));
  assert(lcIsCudaAvailable() == (active.backend == lcBackendCuda));
  assert(lcGetMemoryModel() == active.memory_model);

  char *p = NULL, *q = NULL;
  char text[] = "some words";
  assert(lcMalloc((void **)&p, sizeof text) == lcSuccess && ((uintptr_t)p & 63) == 0);
  for (size_t i = 0; i < sizeof text; i++) assert(p[i] == 0);
  assert(lcMalloc((void **)&q, 0) == lcSuccess && q && q != p);
  assert(lcMalloc(NULL, 4) == lcErrorInvalidValue);
  assert(lcMalloc((void **)&q + 0, (size_t)-1) == lcErrorOutOfMemory && q);
  assert(lcMemcpy(p, text, sizeof text, lcMemcpyHostToDevice) == lcSuccess);
  assert(lcMemcpy(p, text, sizeof text + 1, lcMemcpyHostToDevice) == lcErrorInvalidPointer);
  assert(lcMemcpy(p + 1, text, sizeof text, lcMemcpyHostToDevice) == lcErrorInvalidPointer);
  assert(lcMemcpy(text, text, 1, lcMemcpyDeviceToHost) == lcErrorInvalidPointer);
  assert(lcMemcpy(p, text, 1, 9) == lcErrorInvalidValue);
  assert(lcMemcpy(NULL, text, 1, lcMemcpyHostToHost) == lcErrorInvalidValue);
  assert(lcMemcpy(NULL, NULL, 0, lcMemcpyHostToHost) == lcSuccess);
  assert(lcMemcpy(p + 1, p, 4, lcMemcpyDeviceToDevice) == lcSuccess && memcmp(p, "ssome", 5) == 0);
  assert(lcFree(p + 1) == lcErrorInvalidPointer);
  assert(lcFree(p) == lcSuccess && lcFree(p) == lcErrorInvalidPointer);
  assert(lcMemcpy(text, p, 1, lcMemcpyDeviceToHost) == lcErrorInvalidPointer);
  assert(lcFree(q) == lcSuccess && lcFree(NULL) == lcSuccess && lcFree(text) == lcErrorInvalidPointer);

  assert(lcGetDefaultSyncPolicy() == lcSyncAuto);
  assert(lcSetDefaultSyncPolicy(5) == lcErrorInvalidValue && lcSetDefaultSyncPolicy(lcSyncNever) == lcSuccess);
  assert(lcGetDefaultSyncPolicy() == lcSyncNever && lcApplyDefaultSyncPolicy() == lcSuccess);
  assert(lcApplySyncPolicy(lcSyncAlways) == lcSuccess && lcApplySyncPolicy(-1) == lcErrorInvalidValue);
  assert(lcDeviceSynchronize() == lcSuccess);
  for (lcError e = -1; e < 8; e++) assert(strlen(lcGetErrorString(e)) > 0);
  assert(strcmp(lcGetMemoryModelName(9), "unknown") == 0);

  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  printf("%s %s\n", lcBackendName(), lcGetMemoryModelName(lcGetMemoryModel()));
  return 0;
}
"""


@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_a_program_in_c(library: Path, standard: str, tmp_path: Path) -> None:
    source = tmp_path / ("program.c" if standard == "c11" else "program.cc")
    if standard == "c11":
        source.write_text(PROGRAM)
    else:
        source.write_text(
            '#include "lightning_core.h"\n#include <cstdio>\nint main() { std::puts(lcBackendName()); }\n'
        )
    compiler = shutil.which("gcc" if standard == "c11" else "g++") or "cc"
    program = tmp_path / "program"
    subprocess.run(
        [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", source, "-o", program]
        + [f"-L{library.parent}", "-llightning_core", f"-Wl,-rpath,{library.parent}", "-pthread"]
        + (["-Wl,--allow-shlib-undefined"] if sys.platform == "linux" else []),
        check=True,
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == lc.backend_name()
    if standard == "c11":
        assert done.stdout.split()[1] == lc.memory_model_name()
