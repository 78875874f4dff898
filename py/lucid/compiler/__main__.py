"""`python -m lucid.compiler`: the tuning cache, and exported programs, from the command line.

python -m lucid.compiler cache                 where the tuning cache is, and what it holds
python -m lucid.compiler cache --json          the same as JSON
python -m lucid.compiler cache --clear         removes it
python -m lucid.compiler cache --forget matmul removes the entries whose keys begin so
python -m lucid.compiler show FILE             the graph and signature of an exported program
"""

from __future__ import annotations

import argparse
import json
import sys

import lucid
from lucid.compiler import tune_cache


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lucid.compiler", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cache = commands.add_parser("cache", help="the tuning cache")
    cache.add_argument("--json", action="store_true", help="as JSON")
    cache.add_argument("--clear", action="store_true", help="remove it")
    cache.add_argument("--forget", metavar="PREFIX", help="remove entries whose keys begin so")
    show = commands.add_parser("show", help="an exported program")
    show.add_argument("file")
    show.add_argument("--dot", action="store_true", help="in Graphviz's language")
    show.add_argument("--svg", action="store_true", help="as a picture")
    given = parser.parse_args(arguments)
    if given.command == "show":
        try:
            program = lucid.export.load(given.file)
            graph = program.graph()
        except lucid.errors.LucidError as error:
            print(error, file=sys.stderr)
            return 1
        print(graph.to_dot() if given.dot else graph.to_svg() if given.svg else program)
        return 0
    if given.clear:
        tune_cache.clear()
    if given.forget is not None:
        print(f"{tune_cache.forget(given.forget)} entries removed", file=sys.stderr)
    found = tune_cache.entries()
    if given.json:
        print(json.dumps({"path": tune_cache.path(), "entries": found}, indent=1))
        return 0
    print(f"{tune_cache.path()}: {len(found)} entries")
    for key, entry in found.items():
        times = ", ".join(f"{name} {us:.1f} us" for name, us in sorted(entry["times_us"].items(), key=lambda x: x[1]))
        print(f"  {key}: {entry['choice']} ({times})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
