"""The layers: which crate may see which. Arrows point down only, and the README shows what is checked here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# From the lowest layer to the highest: a crate may depend on crates before its own line alone.
LAYERS = (
    "mlx-ffi",
    "lucid-core",
    "lucid-derive",
    "lucid-rows",
    "lucid-fft",
    "lucid-ir",
    "lucid-cpu",
    "lucid-mlx",
    "lucid",
    "lucid-py",
    "lucid-capi",
    "lucid-infer",
    "embed",
)


def manifests() -> dict[str, Path]:
    """The workspace's manifests, by the name of the package."""
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    paths = [ROOT / "Cargo.toml", *(ROOT / member / "Cargo.toml" for member in members)]
    return {tomllib.loads(path.read_text())["package"]["name"]: path for path in paths}


def dependencies(manifest: Path) -> set[str]:
    """The crates of the workspace that a package is built with, on any platform; not those of its tests."""
    parsed = tomllib.loads(manifest.read_text())
    tables = [parsed, *parsed.get("target", {}).values()]
    return {name for table in tables for name in table.get("dependencies", {})} & set(LAYERS)


def drawn() -> str:
    """The graph of crates as the README shows it."""
    lines = []
    for name, path in sorted(manifests().items(), key=lambda item: LAYERS.index(item[0])):
        below = sorted(dependencies(path), key=LAYERS.index)
        lines.append(f"{name:<10} -> {', '.join(below)}" if below else name)
    return "\n".join(lines)


def test_every_crate_has_a_layer() -> None:
    assert set(manifests()) == set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_arrows_point_down(name: str) -> None:
    upward = {d for d in dependencies(manifests()[name]) if LAYERS.index(d) >= LAYERS.index(name)}
    assert not upward, f"{name} depends on {upward}, which are not below it"


@pytest.mark.parametrize("folder", ["core", "fft", "ir", "cpu", "mlx"])
def test_lower_crates_name_only_what_is_below_them(folder: str) -> None:
    allowed = {d.replace("-", "_") for d in dependencies(ROOT / "engine" / folder / "Cargo.toml")}
    own = f"lucid_{folder}"
    for path in (ROOT / "engine" / folder).rglob("*.rs"):
        lines = (line for line in path.read_text().splitlines() if not line.lstrip().startswith("//"))
        # The examples of rows are text here: the engine makes doc tests of them.
        code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', "\n".join(lines))
        named = set(re.findall(r"\b(lucid_[a-z]+|lucid)::", code)) & {"lucid", *(n.replace("-", "_") for n in LAYERS)}
        assert named <= allowed | {own}, f"{path.relative_to(ROOT)} names {named - allowed}"


def test_the_readme_shows_the_layers() -> None:
    assert drawn() in (ROOT / "README.md").read_text(), f"the README should show\n{drawn()}"
