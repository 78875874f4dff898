"""liblucid_infer: what `lucid.export` wrote, run by programs in C; its ABI; broken files."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lucid
import numpy as np
import pytest
from lucid import nn

from tests.python.tolerances import TABLE

ROOT = Path(lucid.__file__).resolve().parents[2]
CRATE = ROOT / "engine" / "infer"
HEADER = CRATE / "include" / "lucid_infer.h"
NAME = "liblucid_infer.dylib" if sys.platform == "darwin" else "liblucid_infer.so"
SYMBOLS = [
    "lucid_infer_abi_version",
    "lucid_infer_free",
    "lucid_infer_input",
    "lucid_infer_input_count",
    "lucid_infer_last_error",
    "lucid_infer_load",
    "lucid_infer_output",
    "lucid_infer_output_count",
    "lucid_infer_release",
    "lucid_infer_run",
]


@pytest.fixture(scope="module")
def library() -> Path:
    """The library that cargo built last."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    there = [path for profile in ("release", "develop") if (path := folder / profile / NAME).exists()]
    if not there:
        pytest.fail("the C library is not built: `cargo build --release -p lucid-infer`")
    return max(there, key=lambda path: path.stat().st_mtime)


def compiled(source: Path, library: Path, to: Path, standard: str = "c11") -> Path:
    """A program in C, with all warnings as errors."""
    compiler = shutil.which("gcc" if standard == "c11" else "g++") or "cc"
    words = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", source, "-o", to]
    words += [f"-L{library.parent}", "-llucid_infer", f"-Wl,-rpath,{library.parent}", "-pthread"]
    words += ["-Wl,--allow-shlib-undefined"] if sys.platform == "linux" else []
    subprocess.run(words, check=True)
    return to


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))

    def forward(self, x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        y = self.body(x)
        return y.softmax(-1), y.argmax(-1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Net]:
    lucid.manual_seed(3)
    net = Net().eval()
    path = tmp_path_factory.mktemp("infer") / "net.lucid"
    vary = {"x": {0: lucid.export.Dim("batch", min=1, max=64)}}
    lucid.export.save(lucid.export.export(net, (lucid.randn(4, 6),), dynamic_shapes=vary), str(path))
    return path, net


def test_the_header_declares_the_functions() -> None:
    assert sorted(set(re.findall(r"\b(lucid_infer_\w+)\(", HEADER.read_text()))) == SYMBOLS


@pytest.mark.skipif(sys.platform != "linux", reason="nm as of GNU binutils")
def test_the_exported_symbols_are_frozen(library: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert sorted(s for s in exported if s.startswith("lucid_infer")) == SYMBOLS


def test_the_header_is_cpp(library: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.cc"
    source.write_text('#include "lucid_infer.h"\nint main() { return lucid_infer_abi_version() != 1; }\n')
    assert subprocess.run([compiled(source, library, tmp_path / "program", "c++17")], check=False).returncode == 0


def test_the_example(library: Path, model: tuple[Path, Net], tmp_path: Path) -> None:
    program = compiled(CRATE / "examples" / "infer.c", library, tmp_path / "infer")
    done = subprocess.run([program, model[0], "5"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("x float32 [5, 6]") and "int64 [5]" in lines[2]
    first = [float(word) for word in lines[1].split("]")[1].split()]
    np.testing.assert_allclose(
        first[:3], model[1](lucid.zeros(1, 6))[0][0].detach().numpy(), rtol=TABLE["few ops"].rtol
    )
    missing = subprocess.run([program, tmp_path / "none"], capture_output=True, text=True, check=False, timeout=60)
    assert missing.returncode == 1 and "none" in missing.stderr


PROGRAM = r"""
#include "lucid_infer.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The ABI of version 1. */
_Static_assert(LUCID_INFER_ABI_VERSION == 1 && sizeof(lucid_infer_tensor) == 88, "layout");
_Static_assert(LUCID_INFER_FAILED == 5 && LUCID_INFER_FLOAT32 == 8 && LUCID_INFER_COMPLEX128 == 11, "values");

static lucid_infer_model *model;
static float x[7][6], want[7][3];

static lucid_infer_tensor input(int64_t rows) {
  lucid_infer_tensor t = {LUCID_INFER_FLOAT32, 2, {rows, 6}, x, (size_t)rows * 24};
  return t;
}

static void *work(void *rows) {
  for (int i = 0; i < 100; i++) {
    lucid_infer_tensor in = input(1 + ((intptr_t)rows + i) % 7), out[2] = {{0}};
    assert(lucid_infer_run(model, &in, 1, out, 2) == LUCID_INFER_OK);
    assert(out[0].ndim == 2 && out[0].shape[0] == in.shape[0] && out[0].shape[1] == 3 && out[0].bytes == in.bytes / 2);
    for (int64_t r = 0; r < in.shape[0]; r++)
      for (int c = 0; c < 3; c++) assert(fabsf(((float *)out[0].data)[3 * r + c] - want[r][c]) < 1e-5f);
    lucid_infer_release(&out[0]);
    lucid_infer_release(&out[1]);
    lucid_infer_release(&out[1]);
  }
  return NULL;
}

int main(int argc, char **argv) {
  assert(argc == 3 && lucid_infer_abi_version() == 1 && strlen(lucid_infer_last_error()) == 0);
  FILE *numbers = fopen(argv[2], "rb");
  assert(numbers && fread(x, sizeof x, 1, numbers) == 1 && fread(want, sizeof want, 1, numbers) == 1);
  fclose(numbers);
  assert(!lucid_infer_load(NULL) && !lucid_infer_load("/") && !lucid_infer_load("\xff\xfe"));
  assert(strlen(lucid_infer_last_error()) > 0);
  model = lucid_infer_load(argv[1]);
  assert(model && lucid_infer_input_count(model) == 1 && lucid_infer_output_count(model) == 2);
  lucid_infer_tensor t;
  char name[2];
  assert(lucid_infer_input(model, 0, &t, name, 2) == LUCID_INFER_OK && strcmp(name, "x") == 0);
  assert(t.dtype == LUCID_INFER_FLOAT32 && t.ndim == 2 && t.shape[0] == -1 && t.shape[1] == 6 && !t.data);
  assert(lucid_infer_input(model, 0, &t, name, 1) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_input(model, 0, &t, NULL, 0) == LUCID_INFER_OK);
  assert(lucid_infer_input(model, 1, &t, NULL, 0) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_output(model, -1, &t, NULL, 0) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_output(model, 1, NULL, NULL, 0) == LUCID_INFER_INVALID_VALUE);

  /* What does not fit is refused, and nothing is written. */
  float memory[21];
  for (int i = 0; i < 21; i++) memory[i] = 7;
  lucid_infer_tensor out[2] = {{0}}, before[2];
  out[0].data = memory, out[0].bytes = sizeof memory;
  memcpy(before, out, sizeof out);
  lucid_infer_tensor bad = input(7);
  bad.dtype = LUCID_INFER_FLOAT64;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.dtype = 12;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.bytes--;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.data = NULL;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.ndim = 9;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.shape[0] = -7;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  bad = input(7), bad.shape[0] = 6, bad.shape[1] = 7;
  assert(lucid_infer_run(model, &bad, 1, out, 2) != LUCID_INFER_OK);
  bad = input(7);
  assert(lucid_infer_run(model, &bad, 1, out, 1) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_run(model, &bad, 2, out, 2) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_run(model, NULL, 1, out, 2) == LUCID_INFER_INVALID_VALUE);
  assert(lucid_infer_run(model, &bad, 1, NULL, 2) == LUCID_INFER_INVALID_VALUE);
  out[0].bytes = before[0].bytes = sizeof memory - 1;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_OUT_OF_MEMORY);
  assert(memcmp(before, out, sizeof out) == 0);
  for (int i = 0; i < 21; i++) assert(memory[i] == 7);

  /* Into the caller's memory, and into the library's. */
  out[0].bytes = sizeof memory;
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_OK);
  assert(out[0].data == memory && fabsf(memory[20] - want[6][2]) < 1e-5f);
  assert(out[1].dtype == LUCID_INFER_INT64 && out[1].shape[0] == 7 && out[1].bytes == 56);
  lucid_infer_release(&out[1]);
  assert(!out[1].data);

  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) assert(!pthread_create(&threads[i], NULL, work, (void *)i));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);

  assert(lucid_infer_free(NULL) == LUCID_INFER_OK && lucid_infer_free(model) == LUCID_INFER_OK);
  assert(lucid_infer_free(model) == LUCID_INFER_INVALID_MODEL && lucid_infer_input_count(model) == -1);
  assert(lucid_infer_run(model, &bad, 1, out, 2) == LUCID_INFER_INVALID_MODEL);
  assert(lucid_infer_output_count((lucid_infer_model *)&x) == -1 && strstr(lucid_infer_last_error(), "freed"));
  puts("ok");
  return 0;
}
"""


def test_a_program_in_c(library: Path, model: tuple[Path, Net], tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    x = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
    want = model[1](lucid.tensor(x))[0].detach().numpy()
    (tmp_path / "numbers").write_bytes(x.tobytes() + want.tobytes())
    program = compiled(source, library, tmp_path / "program")
    done = subprocess.run(
        [program, model[0], tmp_path / "numbers"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "ok"


LOADER = r"""
#include "lucid_infer.h"
#include <stdio.h>

/* Loads each file, runs what is a model, and prints how that went. */
int main(int argc, char **argv) {
  static char room[1 << 16];
  for (int i = 1; i < argc; i++) {
    lucid_infer_model *model = lucid_infer_load(argv[i]);
    int status = -1;
    if (model && lucid_infer_input_count(model) == 1 && lucid_infer_output_count(model) == 2) {
      lucid_infer_tensor in = {LUCID_INFER_FLOAT32, 2, {2, 6}, room, 48}, out[2] = {{0}};
      status = lucid_infer_run(model, &in, 1, out, 2);
      lucid_infer_release(&out[0]);
      lucid_infer_release(&out[1]);
    }
    lucid_infer_free(model);
    printf("%d %d\n", model != NULL, status);
  }
  return 0;
}
"""


def broken(data: bytes, count: int) -> list[bytes]:
    """Files that are no models: cut, with bytes changed, parts doubled, and headers that lie."""
    draw = random.Random(7)
    found = [b"", data[:8], data[:-1], data + b"x", b"\xff" * 64, b"\x08\0\0\0\0\0\0\0{}      "]
    while len(found) < count:
        made = bytearray(data)
        kind = draw.randrange(4)
        if kind == 0:
            del made[draw.randrange(len(made)) :]
        elif kind == 1:
            for _ in range(draw.choice((1, 2, 8))):
                made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
        elif kind == 2:
            at = draw.randrange(len(made))
            made[at:at] = made[at : at + draw.randrange(1, 40)]
        else:
            # Digits of the header: sizes, offsets, numbers of values and ops.
            digits = [i for i, b in enumerate(made[: len(made) // 2]) if 48 <= b <= 57]
            made[draw.choice(digits)] = draw.choice(b"0123456789")
        if bytes(made) != data:
            found.append(bytes(made))
    return found


def test_broken_files_are_refused(library: Path, model: tuple[Path, Net], tmp_path: Path) -> None:
    source = tmp_path / "loader.c"
    source.write_text(LOADER)
    program = compiled(source, library, tmp_path / "loader")
    files = []
    for i, data in enumerate(broken(model[0].read_bytes(), 400)):
        files.append(tmp_path / f"{i}.lucid")
        files[-1].write_bytes(data)
    done = subprocess.run([program, model[0], *files], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"ended in {done.returncode}: {done.stderr}"
    lines = done.stdout.splitlines()
    assert lines[0] == "1 0" and len(lines) == 401
    # The checksum finds what is changed.
    assert all(line == "0 -1" for line in lines[1:]), [i for i, line in enumerate(lines[1:]) if line != "0 -1"]
