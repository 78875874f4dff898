"""macOS without a Mac: which of its versions the wheel fits, and what MLX's library asks of the system."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import lucid
import pytest
from packaging import tags

ROOT = Path(lucid.__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "cross"))

import arm64  # noqa: E402
import macho  # noqa: E402
import parts  # noqa: E402

MLX = parts.CROSS / "macos" / "mlx" / "lib" / "libmlx.dylib"


def fits(macos: tuple[int, int], machine: str, python: tuple[int, int]) -> bool:
    """Does pip take the wheel there?"""
    platforms = list(tags.mac_platforms(macos, machine))
    return macho.TAG in {str(tag) for tag in tags.cpython_tags(python, platforms=platforms)}


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_the_wheel_is_for_macos_14_and_newer_on_apple_chips(python: tuple[int, int]) -> None:
    # After 15 came 26, which a Python built for an older one calls 16.
    assert all(fits((version, minor), "arm64", python) for version in (14, 15, 16, 26) for minor in (0, 4))
    assert not fits((13, 6), "arm64", python)
    assert not fits((26, 0), "x86_64", python)


def test_the_oldest_macos_is_the_same_everywhere() -> None:
    """MLX's wheel says it; the build, its scripts and the wheel's name follow."""
    (mlx,) = parts.wheels("macos")
    assert mlx.tag == "macosx_14_0_arm64" and macho.TAG.endswith(mlx.tag)
    texts = {name: (ROOT / name).read_text() for name in ("Makefile", "mlx-ffi/build.rs", "tools/cross/macos.py")}
    found = {name: re.findall(r"MACOSX_DEPLOYMENT_TARGET\W.*?(\d+\.\d+)", text) for name, text in texts.items()}
    assert set(found["Makefile"]) == set(found["mlx-ffi/build.rs"]) == set(found["tools/cross/macos.py"]) == {"14.0"}


def test_mlx_asks_the_system_for_its_limits() -> None:
    """The names by which libmlx.dylib asks `sysctl`, and those by which the engine asks MLX."""
    if not MLX.is_file():
        pytest.skip("mlx-metal's library is not there: `make metal-check` fetches it")
    library = MLX.read_bytes()
    assert all(f"\0{name}\0".encode() in library for name in ("_sysctlbyname", "hw.memsize", "iogpu.rsrc_limit"))
    asked = set(re.findall(r'c"(\w+)"', (ROOT / "mlx-ffi" / "src" / "device.rs").read_text()))
    held = {name for name in asked if f"\0{name}\0".encode() in library}
    # The others are CUDA's.
    assert held == {"device_name", "architecture", "memory_size"}


def test_emulated_programs_find_the_libraries_without_cargo() -> None:
    """The test programs of crates below `lucid` load MLX too, and have no run path."""
    (folders,) = re.findall(r" -E LD_LIBRARY_PATH=(\S+)", arm64.RUNNER)
    *guests, host = folders.split(":")
    assert guests == [str(parts.CROSS / "arm64" / name / "lib") for name in ("mlx", "openblas")]
    # QEMU's own, for programs that start themselves again.
    assert host == str(arm64.HOST_LIBRARIES)
    assert arm64.environment()["LUCID_TEST_RUNNER"] == arm64.RUNNER
