"""Are our declarations of Apple's functions what Apple's headers say?

rustc expands the engine for the Mac, so that every `extern "C"` block is seen, those that macros write too. Then

- vDSP and vForce: the blocks are compiled beside bindgen's output from Apple's headers; rustc's lint
  `clashing_extern_declarations` finds every type that differs.
- cblas and LAPACK, of which there is no such output: the name exists, the number of parameters and which of them are
  pointers agree with Apple's headers, and the elements are those that the name's first letter says (s, d, c).

gfortran's hidden lengths of strings, parameters named `*_len` at the end, are not Apple's: arguments beyond a
function's parameters are ignored on arm64, so that one declaration serves both.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from parts import CROSS, ROOT

FOREIGN = re.compile(r'extern "C" \{(.*?)\n\s*\}', re.DOTALL)
FUNCTION = re.compile(r"\bfn\s+(\w+)\s*\(([^)]*)\)\s*(?:->\s*([^;]+?))?\s*;")
APPLES = re.compile(r"(vDSP_|vv|cblas_|catlas_|appleblas_)\w+|[sdcz][a-z0-9]{3,}_")
ELEMENT = {"s": "f32", "d": "f64", "c": "Complex32", "z": "Complex64"}
SPLIT = re.compile(r",\s*(?=\w+\??:\s)")

Signature = tuple[list[bool], bool]


def expand(env: dict[str, str]) -> str:
    """The engine's source for the Mac, macros expanded."""
    command = ["cargo", "rustc", "--quiet", "-p", "lucid", "--lib", "--profile", "check"]
    command += ["--target", "aarch64-apple-darwin", "--", "-Zunpretty=expanded"]
    env = env | {"RUSTC_BOOTSTRAP": "1"}
    done = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit("cross: the engine does not expand; see rustc's message above")
    return done.stdout


def ours(source: str) -> dict[str, tuple[str, str]]:
    """Apple's functions that expanded source declares: parameters and result by name."""
    found = {}
    for block in FOREIGN.findall(source):
        for name, parameters, result in FUNCTION.findall(block):
            if APPLES.fullmatch(name):
                found[name] = (" ".join(parameters.split()).rstrip(","), result)
    return found


def headers() -> dict[str, Signature]:
    """What Apple's headers declare: is each parameter a pointer, and is there a result?"""
    found = {}
    for line in (CROSS / "Accelerate.d.ts").read_text().splitlines():
        if match := re.match(r"declare function (\w+)\((.*)\): (.*);\s*$", line):
            types = [part.split(":", 1)[1] for part in SPLIT.split(match[2]) if part]
            pointers = [bool(re.search("Pointer|Reference|=>|string", kind)) for kind in types]
            # LAPACK's C declarations return an int that says nothing: Fortran's subroutines return nothing.
            found[match[1]] = (pointers, match[3] != "void" and not match[1].endswith("_"))
    return found


def signature(parameters: str, result: str) -> Signature:
    """The same of a declaration of ours."""
    pairs = [part.split(":", 1) for part in SPLIT.split(parameters) if part]
    while pairs and pairs[-1][0].endswith("_len") and pairs[-1][1].strip() == "usize":
        pairs.pop()
    return [kind.strip().startswith(("*", "&", "Option<")) for _, kind in pairs], bool(result)


def mismatches(declared: dict[str, tuple[str, str]]) -> list[str]:
    """What differs from the headers in names, number of parameters, pointers, results and elements."""
    theirs, bad = headers(), []
    for name, (parameters, result) in declared.items():
        if name not in theirs:
            bad.append(f"{name}: Accelerate has no such function")
        elif signature(parameters, result) != theirs[name]:
            bad.append(f"{name}({parameters}): Accelerate's has (pointer?, result?) {theirs[name]}")
        letter = name.removeprefix("cblas_")[0]
        if not name.startswith(("vDSP", "vv")):
            used = set(re.findall(r"\b(?:f32|f64|Complex32|Complex64)\b", parameters))
            if used - {ELEMENT[letter]}:
                bad.append(f"{name}({parameters}): elements are {sorted(used)}, its name says {ELEMENT[letter]}")
    return bad


def clashes(declared: dict[str, tuple[str, str]], env: dict[str, str]) -> list[str]:
    """What rustc finds to differ from bindgen's output in types."""
    lines = [f"pub fn {n}({p}){f' -> {r}' if r else ''};" for n, (p, r) in declared.items() if n[:2] in ("vD", "vv")]
    body = "\n".join(lines)
    source = f"""#![allow(warnings)]
#![deny(clashing_extern_declarations)]
#[path = "{CROSS}/accelerate-ffi/vdsp.rs"] mod vdsp;
#[path = "{CROSS}/accelerate-ffi/vforce.rs"] mod vforce;
mod ours {{
    use std::ffi::*;
    use super::vdsp::*;
    extern "C" {{ {body} }}
}}
"""
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        file = Path(scratch) / "check.rs"
        file.write_text(source)
        command = [env["RUSTC"], "--edition=2021", "--crate-type=lib", "--emit=metadata"]
        command += ["--target=aarch64-apple-darwin", "-o", f"{scratch}/check.rmeta", str(file)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    found = re.findall(r"error: (`\w+` redeclared[^\n]*)", done.stderr)
    return found or ([] if done.returncode == 0 else [done.stderr])


def planted(declared: dict[str, tuple[str, str]], env: dict[str, str]) -> list[str]:
    """Mistakes that a working check must find; returns those that it lets through."""
    through = []
    name = next(n for n in declared if n.startswith("vv"))
    wrong = {name: (declared[name][0].replace("*const f32", "*const f64"), "")}
    if wrong[name] == declared[name] or not clashes(wrong, env):
        through.append(f"a wrong element type in {name}")
    parameters = declared["cblas_sgemm"][0]
    for text, what in [
        (parameters.rsplit(",", 1)[0], "a parameter too few"),
        (parameters.replace("alpha: f32", "alpha: *const f32"), "a pointer in place of a number"),
        (parameters.replace("a: *const f32", "a: *const f64"), "elements of another type"),
    ]:
        if text == parameters or not mismatches({"cblas_sgemm": (text, "")}):
            through.append(f"{what} in cblas_sgemm")
    if not mismatches({"cblas_sgemn": (parameters, "")}):
        through.append("a misspelt name")
    return through


def check(env: dict[str, str]) -> None:
    """End with what is wrong, if anything is."""
    declared = ours(expand(env))
    bad = mismatches(declared) + clashes(declared, env)
    bad += [f"the check itself lets {mistake} through" for mistake in planted(declared, env)]
    if bad:
        raise SystemExit("\n".join(f"cross: {line}" for line in bad))
    kinds = [sum(name.startswith(prefix) for name in declared) for prefix in ("vDSP_", "vv", "cblas_")]
    rest = len(declared) - sum(kinds)
    counts = "{} of vDSP, {} of vForce, {} of cblas".format(*kinds)
    print(f"cross: declarations agree with Apple's headers: {counts}, {rest} of LAPACK")
