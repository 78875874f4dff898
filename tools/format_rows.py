"""Formats the rows of the op table, which rustfmt does not read: one order of fields, no line over 120 columns.

    python tools/format_rows.py            formats the files of engine/ir/ops and engine/ops
    python tools/format_rows.py --check    prints what it would change, and fails if that is anything

What a row may say is in engine/rows/lib.rs. Values stay as they are written, but for their line breaks.
"""

import argparse
import difflib
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH = 120
# The lines of a row, and which fields each has, in order.
LINES = [
    ["call", "in_place", "python", "out", "flags", "amp", "deterministic", "dtypes", "result"],
    ["primitive", "saves", "gradient"],
    ["run", "node", "torch"],
    ["samples"],
    ["example"],
]
LABELS = [label for line in LINES for label in line]
OPEN, CLOSE = "([{", ")]}"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|\'(?:[^\'\\]|\\.)\'|[()\[\]{}]|[^"()\[\]{}/\']+|.', re.S)


def end_of_group(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for token in TOKEN.finditer(text, start):
        if token[0] in OPEN:
            depth += 1
        elif token[0] in CLOSE:
            depth -= 1
            if depth == 0:
                return token.end()
    raise ValueError(f"no closing bracket: {text[start : start + 60]!r}")


def split(text: str, separator: str = ",") -> list[str]:
    """The parts between separators outside of brackets, strings and comments."""
    parts, depth, part, bars = [], 0, "", 0
    for token in TOKEN.finditer(text):
        if token[0] in OPEN:
            depth += 1
        elif token[0] in CLOSE:
            depth -= 1
        if depth or token[0][0] in '"/' or token[0] in CLOSE:
            part += token[0]
            continue
        for char in token[0]:
            bars += char == "|"
            if char == separator and bars % 2 == 0:
                parts.append(part)
                part = ""
            else:
                part += char
    parts.append(part)
    return [p.strip() for p in parts if p.strip()]


def fields_of(body: str) -> dict[str, str]:
    """A row's fields: a comma ends one where a known label follows."""
    starts = []
    depth, place = 0, 0
    for token in TOKEN.finditer(body):
        if token[0] in OPEN:
            depth += 1
        elif token[0] in CLOSE:
            depth -= 1
        elif depth == 0 and token[0][0] not in '"/':
            for found in re.finditer(r"(?:^|(?<=,)|(?<=\s))([a-z_]+)\s*:(?!:)", token[0]):
                before = body[: token.start() + found.start()].rstrip()
                if found[1] in LABELS and (not before or before.endswith(",")):
                    starts.append((found[1], token.start() + found.start(1), token.start() + found.end()))
        place = token.end()
    fields = {}
    for (label, _, start), after in zip(starts, [s[1] for s in starts[1:]] + [place], strict=True):
        fields[label] = body[start:after].strip().rstrip(",").strip()
    return fields


def one_line(text: str) -> str:
    """The text on one line, strings untouched; texts with comments keep their breaks."""
    if "//" in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        return text
    parts = [t[0] if t[0][0] == '"' else re.sub(r"\s+", " ", t[0]) for t in TOKEN.finditer(text)]
    line = "".join(parts).strip()
    line = re.sub(r"([(\[]) ", r"\1", line)
    line = re.sub(r",? ([)\]])", r"\1", line)
    # Method chains lose the space before their dots.
    return re.sub(r"(?<=[)\]?]) \.(?=[a-z])", ".", line)


def broken(label: str, value: str, pad: str) -> list[str]:
    """A field that does not fit into a line, over several."""
    head = re.match(r"(\|[^|]*\|\s*)?\[", value)
    if head and end_of_group(value, head.end() - 1) == len(value):
        items = split(value[head.end() : -1])
        lines = [f"{pad}{label}: {value[: head.end()]}"]
        for item in items:
            lines += reindented(item + ",", pad + "    ")
        return [*lines, pad + "],"]
    return [*reindented(f"{label}: {value},", pad)]


def reindented(text: str, pad: str) -> list[str]:
    """Lines that keep their indentation beside one another."""
    first, *rest = text.split("\n")
    rest = textwrap.dedent("\n".join(rest)).split("\n") if rest else []
    lines = [pad + first.strip()]
    for line in rest:
        lines.append((pad + line).rstrip())
    return lines


def opening(head: str, pad: str) -> list[str]:
    """The line with name and signature, or several, filled."""
    if len(pad) + len(head) + 2 <= WIDTH or "(" not in head:
        return [f"{pad}{head} {{"]
    start = head.index("(")
    end = end_of_group(head, start)
    inner = pad + "    "
    lines, line = [f"{pad}{head[: start + 1]}"], ""
    for item in re.findall(r"(?:[^,;(\[]|\[[^\]]*\]|\([^)]*\))+[,;]?", head[start + 1 : end - 1]):
        if line and len(inner) + len(line) + 1 + len(item.strip()) > WIDTH:
            lines.append(inner + line)
            line = ""
        line = f"{line} {item.strip()}".strip()
    return [*lines, inner + line, f"{pad}{head[end - 1 :]} {{"]


def written(head: str, docs: list[str], fields: dict[str, str], pad: str) -> str:
    """A row."""
    lines = []
    for doc in docs:
        lines += textwrap.wrap(doc, WIDTH - len(pad) - 4, break_long_words=False, break_on_hyphens=False) or [""]
    out = [f"{pad}/// {line}".rstrip() for line in lines]
    out += opening(head, pad)
    inner = pad + "    "
    for group in LINES:
        line = ""
        for label in group:
            if label not in fields:
                continue
            flat = one_line(fields[label])
            item = f"{label}: {flat},"
            if "\n" in flat or len(inner) + len(item) > WIDTH:
                value = fields[label] if "\n" in fields[label] and not fields[label].startswith("[") else flat
                out += [inner + line] if line else []
                out += broken(label, value if label not in ("samples", "example") else flat, inner)
                line = ""
            elif line and len(inner) + len(line) + 1 + len(item) > WIDTH:
                out.append(inner + line)
                line = item
            else:
                line = f"{line} {item}".strip()
        out += [inner + line] if line else []
    out.append(pad + "}")
    return "\n".join(out) + "\n"


ROW = re.compile(
    r"((?:[ ]*///[^\n]*\n)+)([ ]*)((?:method|function) [a-z_0-9#]+|[a-z_0-9#]+ = [A-Za-z0-9]+ (?=\{))", re.S
)


def formatted(text: str) -> str:
    """A file, with the rows of its `rows!` formatted."""
    place, out = 0, ""
    for call in re.finditer(r"rows! \{", text):
        end = end_of_group(text, call.end() - 1)
        out += text[place : call.end()]
        place = call.end()
        while (row := ROW.search(text, place, end)) is not None:
            out += text[place : row.start()]
            docs = [re.sub(r"^\s*/// ?", "", line) for line in row[1].splitlines()]
            start = row.end()
            if row[3].startswith(("method", "function")):
                start = end_of_group(text, text.index("(", row.start(3)))
            brace = text.index("{", start)
            close = end_of_group(text, brace)
            head = one_line(text[row.start(3) : brace])
            out += written(head, paragraphs(docs), fields_of(text[brace + 1 : close - 1]), row[2])
            place = close
            while place < len(text) and text[place] == "\n":
                place += 1
                break
        out += text[place:end]
        place = end
    return out + text[place:]


def paragraphs(lines: list[str]) -> list[str]:
    """Doc lines as they are; where one is too long, the lines of its paragraph as one, to be filled."""
    made: list[list[str]] = [[]]
    for line in lines:
        block = not line or line.startswith((" ", "```", "|", "- ", "#"))
        if block or not made[-1] or made[-1][0] == "":
            made.append([line])
        else:
            made[-1].append(line)
        if block and line:
            made.append([])
    fits = [all(len(line) <= WIDTH - 12 for line in part) for part in made]
    return [line for part, fit in zip(made, fits, strict=True) for line in (part if fit else [" ".join(part)])]


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = 0
    for path in sorted((ROOT / "engine").glob("**/ops/**/*.rs")):
        text = path.read_text()
        made = formatted(text)
        if made == text:
            continue
        wrong += 1
        if check:
            name = str(path.relative_to(ROOT))
            sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), made.splitlines(True), name, name))
        else:
            path.write_text(made)
    return int(check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
