#!/usr/bin/env python3
"""Which comments, documents and names use a word that the field does not?

    python tools/words.py      prints each place; exit status 1 where there is one

A reader finds a thing by the field's word. The patterns are those whose meaning is never the right one here; a word
that may be right in its context, such as `place` or `fold`, is for the reviewer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".rs", ".py", ".pyi", ".md", ".txt", ".toml", ".h", ".c"}
#: What is generated, and the diary of measurements, whose entries stay as they were written.
SKIPPED = {"docs/speed.md", "docs/support.md", "tools/words.py"}

#: By the pattern what to write.
INSTEAD = {
    r"\b(lies|lay|lying|lies?_\w+)\b|\blie (in|on|at|by|as|so|side|inside|outside)\b": "is, strides, layout",
    r"\bwhat (goes|went|goes and comes) back through\b": "the gradient through",
    r"\bbends?\b": "not differentiable at, kink, piecewise linear",
    r"\blets? go of\b|\bletting go of\b": "release, drop, free",
    r"\bspent\b": "donated, released",
    r"\bstretched\b": "broadcast, expanded",
    r"\bsteps? of the tape\b": "node of the graph, backward node",
    r"\bcomes? due\b": "is evaluated",
    r"\bput as\b": "lowered to",
    r"\bhosted (kernel|node)s?\b": "host kernel",
    r"\b(Kept|Told|Telling|Laying|Beside|Lasting)(?=\b|::)(?= *(\{|<|\(|;|::))": "a noun of the field",
    r"\b(lead|either|as_asked)!": "convert_arg! and its kin",
    r"\bmake_way\b|\bstrangers\b": "yield_cores, device_mismatch",
}
#: Where a pattern is right in its context: the file and a part of the line.
RIGHT = {
    ("engine/cpu/simd/buffer.rs", "Memory::Kept"),
    ("engine/cpu/simd/memory.rs", "Kept"),
    ("mlx-ffi/src/call.rs", "Kept"),
    ("mlx-ffi/src/primitive.rs", "Kept"),
    ("mlx-ffi/src/ops/contract.rs", "Kept"),
    ("tests/python/integration/test_infer_c.py", "headers that lie"),
}


def findings() -> Iterator[str]:
    """The places, each with the word and what to write."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    patterns = [(re.compile(p), instead) for p, instead in INSTEAD.items()]
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix not in SUFFIXES or name in SKIPPED or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for pattern, instead in patterns:
                found = pattern.search(line)
                if found and not any(name == file and part in line for file, part in RIGHT):
                    yield f"{name}:{number}: {found[0]!r}; write: {instead}"


def main() -> int:
    found = list(findings())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
