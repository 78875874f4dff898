"""MLX's CPU stream computes with the BLAS of the CPU device, unless MLX was imported before or it is turned off.

What `libmlx` is bound to is read from the dynamic linker's own report.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import lucid
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="on macOS both use Accelerate")
HERE = platform.machine() in ("x86_64", "aarch64")

PRODUCT = "x = lucid.ones(8, 8, device='gpu'); assert (x @ x).sum().item() == 512"
SVD = "assert abs(lucid.linalg.svdvals(x)[0].item() - 8) < 1e-4"


def bound(program: str, symbol: str, **env: str) -> list[str]:
    """The libraries that `libmlx` and the extension found a symbol in, in order."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env, "LD_DEBUG": "bindings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.findall(rf"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `{symbol}'", done.stderr)
    return [f"{Path(a).name} to {Path(b).name.split('-')[0]}" for a, b in found]


@pytest.mark.skipif(not HERE or lucid.device("gpu").type != "mlx", reason="MLX has a GPU here, or another processor")
@pytest.mark.parametrize(("symbol", "then"), [("cblas_sgemm", "pass"), ("sgesdd_", SVD)])
def test_what_mlx_computes_with(symbol: str, then: str) -> None:
    ours = f"import lucid; {PRODUCT}; {then}"
    assert bound(ours, symbol) == ["libmlx.so to _C.abi3.so"]
    # Turned off, the jump leads to MLX's own.
    stock = bound(ours, symbol, LUCID_MLX_BLAS="stock")
    assert "libmlx.so to _C.abi3.so" in stock
    assert [b for b in stock if b.startswith("_C.abi3.so to lib") and "openblas" not in b]
    # MLX before us has found its own already.
    first = bound(f"import mlx.core as mx; mx.eval(mx.ones((2, 2)) @ mx.ones((2, 2))); {ours}", symbol)
    assert "libmlx.so to _C.abi3.so" not in first


@pytest.mark.skipif(not HERE, reason="not forwarded on this processor")
def test_all_of_what_mlx_imports_is_given() -> None:
    import mlx.core

    library = next(Path(mlx.core.__file__).parent.glob("lib/libmlx.so"))
    imports = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
    wanted = set(re.findall(r" U (cblas_\w+|[sdcz][a-z0-9]+_)\n", imports.stdout))
    exports = subprocess.run(
        ["nm", "-D", "--defined-only", lucid._C.__file__], capture_output=True, text=True, check=True
    )
    assert wanted and wanted <= set(re.findall(r" T (\w+)\n", exports.stdout))
