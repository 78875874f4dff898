#!/usr/bin/env python3
"""Fetch the prebuilt parts that the build needs into this folder.

Every part is a PyPI wheel pinned by name, version and SHA-256; pip downloads it (so a configured
index, proxy or wheel folder is honoured) and checks the hash, and this script unpacks what the
build reads. Nothing is compiled and nothing outside vendor/ is written. A stamp beside each part
records what it was unpacked from, so running the script again is quick and a changed pin is
noticed.

    python vendor/fetch.py            fetch what is missing for this machine
    python vendor/fetch.py --check    only say whether everything is in place (exit status 1 if not)
    python vendor/fetch.py --list     print the pins

What comes from PyPI: MLX's library with its headers (mlx-cpu or mlx-metal; the package mlx holds
only its Python side), OpenBLAS (scipy-openblas32, not on macOS, where Accelerate serves) and
libclang (for bindgen). mlx-c's source comes through cargo instead: mlx-ffi/Cargo.toml names the
package mlx-sys, Cargo.lock pins it.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

MLX = "0.32.2"
OPENBLAS = "0.3.34.481.3"
LIBCLANG = "18.1.1"


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel: `keep` maps path prefixes inside it to paths under vendor/."""

    package: str
    version: str
    tag: str  # pip's --platform
    sha256: str
    keep: tuple[tuple[str, str], ...]


_MLX = (("mlx/include/", "mlx/include/"), ("mlx/lib/", "mlx/lib/"), ("mlx_cpu.libs/", "mlx_cpu.libs/"))
_BLAS = (("scipy_openblas32/include/", "openblas/include/"), ("scipy_openblas32/lib/", "openblas/lib/"))
_CLANG = ((f"libclang-{LIBCLANG}.data/platlib/clang/native/", "libclang/"), ("clang/native/", "libclang/"))

# One row per wheel, by machine; none depends on the version of Python.
PARTS: dict[tuple[str, str], tuple[Wheel, ...]] = {
    ("Linux", "x86_64"): (
        Wheel(
            "mlx-cpu",
            MLX,
            "manylinux_2_35_x86_64",
            "fc5d31b90fc4f457b2f9614ed45651a567d22a6a11a03d114a90a4e10bdd8878",
            _MLX,
        ),
        Wheel(
            "scipy-openblas32",
            OPENBLAS,
            "manylinux_2_28_x86_64",
            "0595f94cd58c1f8a0d90c975621f4587337a003916b1979e834ebdf2cb5d9504",
            _BLAS,
        ),
        Wheel(
            "libclang",
            LIBCLANG,
            "manylinux2010_x86_64",
            "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
            _CLANG,
        ),
    ),
    ("Linux", "aarch64"): (
        Wheel(
            "mlx-cpu",
            MLX,
            "manylinux_2_35_aarch64",
            "d0f94625588b51a878786dd51cec5617894ce586cf3c94645ce1b64e24c27c0b",
            _MLX,
        ),
        Wheel(
            "scipy-openblas32",
            OPENBLAS,
            "manylinux_2_28_aarch64",
            "e085dddbc5b9aa130f83def515d31c440e69f387a90c7e63b154a5575b4466bc",
            _BLAS,
        ),
        Wheel(
            "libclang",
            LIBCLANG,
            "manylinux2014_aarch64",
            "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592",
            _CLANG,
        ),
    ),
    ("Darwin", "arm64"): (
        Wheel(
            "mlx-metal",
            MLX,
            "macosx_14_0_arm64",
            "3825fff379dbc107dd3413e564a06caeaa24819910ec49c0439e454c06a1b9b8",
            _MLX,
        ),
        Wheel(
            "libclang",
            LIBCLANG,
            "macosx_11_0_arm64",
            "0b2e143f0fac830156feb56f9231ff8338c20aecfe72b4ffe96f19e5a1dbb69a",
            _CLANG,
        ),
    ),
}


def stamp(wheel: Wheel, root: Path = HERE) -> Path:
    """The file that records what `wheel` was unpacked from."""
    return root / ".stamps" / wheel.package


def in_place(wheel: Wheel, root: Path = HERE) -> bool:
    """Whether this very wheel has been unpacked under `root`, and its files are still there."""
    try:
        recorded = stamp(wheel, root).read_text().splitlines()
    except OSError:
        return False
    return recorded[:1] == [wheel.sha256] and all((root / path).is_file() for path in recorded[1:])


def download(wheel: Wheel, into: Path) -> Path:
    """Let pip fetch the wheel and check its hash."""
    requirements = into / "requirements.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.11",
        "--implementation=cp",
        f"--platform={wheel.tag}",
        "--require-hashes",
        "--dest",
        str(into),
        "-r",
        str(requirements),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(
            f"vendor: pip could not fetch {wheel.package} {wheel.version}; see its message above "
            "(a network, or PIP_FIND_LINKS naming a folder with the wheel, is needed once)."
        )
    return next(into.glob("*.whl"))


def unpack(wheel: Wheel, archive: Path, root: Path = HERE) -> list[str]:
    """Copy what `keep` names out of the wheel; return the paths written, relative to `root`."""
    written: list[str] = []
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            for prefix, target in wheel.keep:
                if member.is_dir() or not member.filename.startswith(prefix):
                    continue
                path = root / target / member.filename[len(prefix) :]
                path.parent.mkdir(parents=True, exist_ok=True)
                # A library may be mapped by a running program: replace the file, do not rewrite it.
                path.unlink(missing_ok=True)
                with content.open(member) as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                written.append(str(path.relative_to(root)))
                break
    if not written:
        raise SystemExit(f"vendor: {archive.name} holds none of the files expected in it.")
    return written


def fetch(wheel: Wheel, root: Path = HERE) -> None:
    """Download, check and unpack one wheel under `root`, then write its stamp."""
    print(f"vendor: fetching {wheel.package} {wheel.version}", flush=True)
    stamp(wheel, root).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="vendor-") as scratch:
        written = unpack(wheel, download(wheel, Path(scratch)), root)
    stamp(wheel, root).parent.mkdir(parents=True, exist_ok=True)
    stamp(wheel, root).write_text("\n".join([wheel.sha256, *written]) + "\n")


def main() -> int:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Fetch the prebuilt parts that the build needs.")
    parser.add_argument("--check", action="store_true", help="only say whether all is in place")
    parser.add_argument("--list", action="store_true", help="print the pins")
    args = parser.parse_args()
    if args.list:
        for (system, machine), wheels in PARTS.items():
            for wheel in wheels:
                print(f"{system:7} {machine:8} {wheel.package:17} {wheel.version:13} {wheel.sha256}")
        return 0
    here = (platform.system(), platform.machine())
    if here not in PARTS:
        known = ", ".join(" ".join(key) for key in PARTS)
        raise SystemExit(f"vendor: no prebuilt parts for {' '.join(here)}; known machines are {known}.")
    missing = [wheel for wheel in PARTS[here] if not in_place(wheel)]
    if args.check:
        for wheel in missing:
            print(f"vendor: {wheel.package} {wheel.version} is not in place; run `make vendor`.")
        return 1 if missing else 0
    for wheel in missing:
        fetch(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
