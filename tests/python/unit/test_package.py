"""The package as such: what importing costs, what it needs, interrupts, the stubs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import lucid
import pytest

ROOT = Path(lucid.__file__).resolve().parent.parent


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_brings_neither_numpy_nor_the_heavier_parts() -> None:
    heavy = ("numpy", "torch", "mlx.core", "inspect", "lucid.nn", "lucid.optim", "lucid.autograd")
    assert run(f"import sys, lucid; print(*(m for m in {heavy} if m in sys.modules))") == ""


def test_mlx_is_told_how_to_use_cuda_unless_the_environment_says_otherwise() -> None:
    """Kernels one by one, and plans of as many convolutions as there are."""
    ours = {"MLX_USE_CUDA_GRAPHS": "0", "MLX_ENABLE_CACHE_THRASHING_CHECK": "0", "MLX_CUDA_CONV_CACHE_SIZE": "1024"}
    program = f"import lucid, os; print(*(os.environ[name] for name in {list(ours)}))"
    for given, want in (({}, [*ours.values()]), (dict.fromkeys(ours, "1"), ["1"] * 3)):
        env = {k: v for k, v in os.environ.items() if k not in ours} | given
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == want


def test_training_needs_no_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
import lucid
model = lucid.nn.Linear(3, 1)
step = lucid.optim.SGD(model.parameters(), lr=0.1)
loss = (model(lucid.randn(8, 3)) ** 2).mean()
loss.eval(); loss.backward(); step.step()
lucid.tensor([[1.0]]); print(repr(loss)[:6])
try:
    lucid.ones(1).numpy()
except ImportError as e:
    print(e)
"""
    assert run(code) == "tensor\nthis needs NumPy: run pip install 'lucid[numpy]'"


def test_names_are_listed_and_unknown_ones_refused() -> None:
    assert {"nn", "optim", "autograd", "add", "Tensor", "no_grad", "from_numpy"} <= set(dir(lucid))
    assert {n for n in lucid.__all__ if not hasattr(lucid, n)} == set()
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = lucid.nothing_of_this_name
    with pytest.raises(AttributeError):
        _ = lucid.autograd.nothing_of_this_name
    scope: dict[str, Any] = {}
    exec("from lucid import *", scope)
    assert scope["ones"] is lucid.ones
    assert "IndexError" not in scope


@pytest.mark.parametrize(
    ("message", "installed", "words"),
    [
        (
            "libmlx.so: cannot open shared object file",
            None,
            ["MLX 0.32.2", "not installed", "lucid[cpu]", "lucid[cuda13]"],
        ),
        ("undefined symbol: _ZN3mlx", "0.31.0", ["MLX 0.32.2", "MLX 0.31.0"]),
        ("libscipy_openblas.so: cannot open", "0.32.2", ["scipy-openblas32"]),
        ("something else", "0.32.2", ["something else"]),
    ],
)
def test_a_failed_import_says_what_to_install(
    message: str, installed: str | None, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lucid import _load

    monkeypatch.setattr(_load, "_installed", lambda: installed)
    monkeypatch.setattr(sys, "platform", "linux")
    advice = _load._advice(ImportError(message))
    assert all(w in advice for w in words)
    assert "\n" not in advice


def test_another_gpu_than_the_installed_one_warns_once() -> None:
    other = "metal" if lucid.device("gpu").type != "metal" else "cuda"
    code = f"""
import warnings, lucid
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    a = lucid.ones(1, device="{other}"); lucid.device("{other}"); a.to("{other}")
print(len(seen), seen[0].category.__name__, "{other}" in str(seen[0].message), a.device.type != "{other}")
"""
    assert run(code, LUCID_STRICT_DEVICE="") == "1 UserWarning True True"
    code = f"""
import lucid
try:
    lucid.ones(1, device="{other}")
except lucid.errors.GpuNotAvailable as e:
    print(isinstance(e, RuntimeError))
"""
    assert run(code, LUCID_STRICT_DEVICE="1") == "True"


@pytest.mark.parametrize("made", ["lucid.ones(1, device='gpu')", "(lucid.ones(3, 3, device='gpu') @ x).sum().item()"])
def test_a_process_ends_with_its_own_status(made: str) -> None:
    # On CUDA the driver may go before what MLX still has to destroy; several at a time, for it is a race.
    code = f"import sys, lucid; x = lucid.ones(3, 3, device='gpu'); kept = {made}; print('made'); sys.exit(3)"
    ended = [subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) for _ in range(4)]
    said = [(*process.communicate(timeout=120), process.returncode) for process in ended]
    assert said == [("made\n", "", 3)] * 4


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_is_raised_and_the_process_stays_usable() -> None:
    # What is started in the background of a shell ignores interrupts; this is about a process that does not.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for device in ("cpu", "gpu"):
            a = lucid.ones(512, 512, device=device)
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    (a @ a).sum().item()
            assert (a + 1).sum().item() == 2 * 512 * 512
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_run_while_one_evaluates() -> None:
    a = lucid.ones(2048, 2048)
    ticks, done = [], threading.Event()

    def work() -> None:
        for _ in range(8):
            a @ a
        done.set()

    t = threading.Thread(target=work)
    t.start()
    while not done.is_set():
        ticks.append(time.monotonic())
        time.sleep(0.001)
    t.join()
    # Were the GIL held through each product, this thread would only run between them.
    assert len(ticks) > 20


def test_the_stubs_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "stubs.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "want"), [({}, "0"), ({"MLX_ENABLE_TF32": "1"}, "1")])
def test_switches_of_mlx_are_set_when_the_package_is_loaded(given: dict[str, str], want: str) -> None:
    # Not at the GPU's first use, when another thread may read the environment.
    code = """
import ctypes, lucid
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
before = getenv(b"MLX_ENABLE_TF32")
lucid.zeros(1, device="gpu").item()
print(before.decode(), getenv(b"MLX_ENABLE_TF32").decode())
"""
    env = {k: v for k, v in os.environ.items() if k != "MLX_ENABLE_TF32"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**env, **given}, timeout=120
    )
    assert done.stdout.split() == [want, want]


def test_every_crate_can_be_packaged() -> None:
    """What `cargo package` asks for beyond a build: versions beside paths, and what crates.io shows."""
    top = ROOT.parent
    workspace = tomllib.loads((top / "Cargo.toml").read_text())
    members = [top, *(top / member for member in workspace["workspace"]["members"])]
    manifests = {folder: tomllib.loads((folder / "Cargo.toml").read_text()) for folder in members}
    published = {f: m for f, m in manifests.items() if m["package"].get("publish", True)}
    names = {m["package"]["name"] for m in published.values()}
    assert names == {
        "lucid", "lucid-core", "lucid-cpu", "lucid-derive", "lucid-fft", "lucid-ir", "lucid-mlx", "lucid-rows",
        "mlx-ffi",
    }  # fmt: skip
    version = workspace["workspace"]["package"]["version"]
    for folder, manifest in published.items():
        package = manifest["package"]
        assert {"description", "readme", "license", "keywords", "categories", "rust-version"} <= package.keys(), folder
        assert (folder / package["readme"]).is_file(), folder
        kinds = ("dependencies", "build-dependencies")
        for name, wanted in [pair for kind in kinds for pair in manifest.get(kind, {}).items()]:
            if isinstance(wanted, dict) and "path" in wanted:
                assert name in names and wanted["version"] == version, (folder, name)
