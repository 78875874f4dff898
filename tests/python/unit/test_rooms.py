"""What the source promises of itself: where `unsafe` is, and which lints keep panics and aborts out."""

from __future__ import annotations

import re
from pathlib import Path

import lucid
import pytest

ROOT = Path(lucid.__file__).resolve().parent.parent.parent

LINTS = (
    "unwrap_used",
    "expect_used",
    "panic",
    "unreachable",
    "todo",
    "disallowed_methods",
    "undocumented_unsafe_blocks",
)

# Comments, strings, raw strings and characters, whose words are no code.
NO_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?c?"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^\\'])'""", re.DOTALL
)


def sources() -> dict[str, str]:
    """Rust's files by path, code alone."""
    folders = ("engine", "mlx-ffi", "py/src", "tests", "examples")
    paths = [p for folder in folders for p in (ROOT / folder).rglob("*.rs")]
    return {str(p.relative_to(ROOT)): NO_CODE.sub(" ", p.read_text()) for p in paths}


SOURCES = sources()


def rooms() -> list[str]:
    """The files and folders that the README says `unsafe` is in."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"^`unsafe` is in (.*?) alone;", text, re.MULTILINE | re.DOTALL)
    assert found, "the README says where `unsafe` is"
    out: list[str] = []
    for name in re.findall(r"`([^`]+)`", found[1]):
        inside = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
        out += [inside[1] + part.strip() + inside[3] for part in inside[2].split(",")] if inside else [name]
    return out


def inside(path: str, room: str) -> bool:
    return path == room or (room.endswith("/") and path.startswith(room))


def test_unsafe_is_where_the_readme_says() -> None:
    listed = rooms()
    assert all((ROOT / room).exists() for room in listed)
    keyword = re.compile(r"\bunsafe\s*(\{|\(|fn\b|impl\b|trait\b|extern\b)")
    used = {path for path, code in SOURCES.items() if keyword.search(code)}
    outside = sorted(path for path in used if not any(inside(path, room) for room in listed))
    assert not outside
    idle = [room for room in listed if not any(inside(path, room) for path in used)]
    assert not idle


def test_unsafe_is_refused_elsewhere() -> None:
    # The compiler keeps it so: refused at the root of each crate, allowed in the rooms.
    for root in ("engine/lib.rs", "examples/embed/src/main.rs"):
        assert "#![deny(unsafe_code)]" in SOURCES[root], root
    assert re.search(r'^unsafe_code = "deny"$', (ROOT / "py/Cargo.toml").read_text(), re.MULTILINE)
    listed = rooms()
    for path, code in SOURCES.items():
        if "allow(unsafe_code)" in code:
            assert any(inside(path, room) for room in listed), path


@pytest.mark.parametrize("manifest", ["Cargo.toml", "py/Cargo.toml"])
def test_lints_that_keep_panics_and_aborts_out(manifest: str) -> None:
    text = (ROOT / manifest).read_text()
    for lint in LINTS:
        assert re.search(rf'^{lint} = "deny"$', text, re.MULTILINE), lint


def test_exceptions_from_these_lints_say_why() -> None:
    kept = "clippy::(" + "|".join(LINTS) + ")"
    for path in SOURCES:
        lines = (ROOT / path).read_text().splitlines()
        for i, line in enumerate(lines):
            if re.search(r"#!?\[allow\([^)]*" + kept, line):
                near = [line.split("]", 1)[1], *lines[max(i - 1, 0) : i], *lines[i + 1 : i + 2]]
                assert any("//" in text for text in near), f"{path}:{i + 1}"
