"""How to add an op, as CONTRIBUTING.md tells: the files and names that it mentions exist, and its example is new."""

from __future__ import annotations

import re
from pathlib import Path

import lucid

ROOT = Path(__file__).resolve().parents[3]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Add an op\n")[1].split("\n## ")[0]
EXAMPLE = "softsquare"
PATH = re.compile(r"`((?:engine|py|tools|tests|docs)/[\w./]+)`")
#: Blocks of code by language.
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", SECTION, re.DOTALL)


def rows_of_text() -> list[str]:
    """The bodies of the rows that it shows."""
    return [body for lang, body in BLOCKS if lang == "rust" and "samples:" in body]


def entries(path: Path) -> list[str]:
    """The names that a file of texts has entries for."""
    heads = re.findall(r"^(\w+)(?=\(|$)", path.read_text(), re.MULTILINE)
    return [head for head in heads if head != "shared"]


def test_files_and_names_in_them_exist() -> None:
    paths = set(PATH.findall(SECTION)) | set(re.findall(r"python (py/[\w/]+\.py)", SECTION))
    assert len(paths) >= 15
    assert [p for p in sorted(paths) if not (ROOT / p).exists()] == []
    named = re.findall(r"`(\w+!?)` of\s+`(engine/[\w./]+)`", SECTION)
    assert len(named) >= 7
    for name, path in named:
        defined = rf"\b(fn|const|macro_rules!) {name.rstrip('!')}\b" if name.endswith("!") else rf"\bfn {name}\b"
        assert re.search(defined, (ROOT / path).read_text()), f"{path} has no {name}"
    for target in re.findall(r"`make ([\w-]+)`", SECTION):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


def test_families_of_the_table_have_their_files_and_rules() -> None:
    rules = "".join(p.read_text() for p in (ROOT / "engine" / "batching").glob("*.rs"))
    lines = SECTION.split("| family |")[1].splitlines()[2:]
    table = [line.split("|")[1:-1] for line in lines if line.startswith("|")]
    families = [family for cells in table for family in re.findall(r"`(\w+)`", cells[0])]
    missing = [f for f in families if not (ROOT / f"engine/ir/ops/{f}.rs").exists()]
    assert missing == [] and {"unary", "scan", "conv", "linalg"} <= set(families)
    for cells in table:
        rule = re.search(r"`(\w+)`", cells[3])
        assert rule and (rule[1] == "moved" or f"fn {rule[1]}(" in rules), cells


def test_the_example_is_new_and_says_fields_that_rows_have() -> None:
    assert EXAMPLE not in {row["name"] for row in lucid.op_schemas()} and not hasattr(lucid, EXAMPLE)
    labels = set(re.findall(r'^ {4}"(\w+)",$', (ROOT / "engine/rows/fields.rs").read_text(), re.MULTILINE))
    shown = rows_of_text()
    assert len(shown) == 2
    for body in shown:
        fields = set(re.findall(r"(?:^ +|, )(\w+): ", body, re.MULTILINE))
        assert {"dtypes", "result", "samples", "example"} <= fields <= labels, fields
    # The composition: its row, its body and its text, which the section says how long they are.
    files, lines = re.search(r"(\w+) files, (\d+) lines", SECTION).groups()  # type: ignore[union-attr]
    composed = SECTION.split("### One whose elements")[0]
    bodies = [body.rstrip() for body in re.findall(r"```\w+\n(.*?)```", composed, re.DOTALL)]
    # Blank lines before the body and before the text.
    assert files == "Two" and sum(body.count("\n") + 1 for body in bodies) + 2 == int(lines)


def test_rows_without_a_peer_in_pytorch_are_public_unless_they_say_internal() -> None:
    for row in lucid.op_schemas():
        name = row["name"]
        if row["internal"]:
            assert row["torch"] == "-" and name not in lucid._C.__all__, name
        elif row["torch"] == "-" and not name.startswith("_"):
            # Samplers write to a tensor alone.
            assert name in lucid._C.__all__ or hasattr(lucid.Tensor, name + "_"), name


def test_texts_are_in_the_files_of_their_families() -> None:
    families = {row["name"]: row["family"] for row in lucid.op_schemas()}
    texts = {(path.stem, name) for path in (ROOT / "engine/ops/docs").glob("*.txt") for name in entries(path)}
    # Functions that are no rows have files of their own.
    rows = {(file, name) for file, name in texts if file not in ("arguments", "bindings", "overloads")}
    assert len(rows) >= 500
    misplaced = [(file, name) for file, name in sorted(rows) if families.get(name) != file]
    assert misplaced == [], {name: families.get(name) for _, name in misplaced}
