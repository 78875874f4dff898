"""Are our declarations of Apple's functions what Apple's headers say?

rustc expands the engine for the Mac, so that every `extern "C"` block is seen, those that macros write too. Then

- all of them: the name exists, and the result and each parameter have the type of Apple's headers (`apple`), down to
  what a pointer points at;
- vDSP and vForce: the blocks are also compiled beside bindgen's output from Apple's headers; rustc's lint
  `clashing_extern_declarations` finds every type that differs, `const` too.

Of cblas and LAPACK `const` is not compared: Apple's LAPACK has none at all, and it is no part of how a function is
called. Complex elements are `void *` in cblas. LAPACK's subroutines return an int in Apple's C that means nothing.
gfortran's hidden lengths of strings, parameters named `*_len` at the end, are not Apple's: arguments beyond a
function's parameters are ignored on arm64, so that one declaration serves both.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import apple
from parts import CROSS, ROOT, say

# `#[link_name = "sgetrf$NEWLAPACK"]`, by which a function of ours is linked.
LINKED = re.compile(r'link_name = "([^"]+)"\]\s*pub fn (\w+)')
FOREIGN = re.compile(r'extern "C" \{(.*?)\n\s*\}', re.DOTALL)
FUNCTION = re.compile(r"\bfn\s+(\w+)\s*\(([^)]*)\)\s*(?:->\s*([^;]+?))?\s*;")
APPLES = re.compile(r"(vDSP_|vv|cblas_|catlas_|appleblas_)\w+|[sdcz][a-z0-9]{3,}_")
C_TYPES = {"c_int": "int", "i32": "int", "f32": "float", "f64": "double", "isize": "long", "usize": "unsigned long"}
C_TYPES |= {"c_char": "char", "c_void": "void", "": "void"}
C_TYPES |= {"Complex32": "__CLPK_complex", "Complex64": "__CLPK_doublecomplex"}
SPLIT = re.compile(r",\s*(?=\w+\s*:\s)")


def expand(env: dict[str, str]) -> str:
    """The CPU backend's source for the Mac, macros expanded: no other crate calls Apple's functions."""
    command = ["cargo", "rustc", "--quiet", "-p", "lucid-cpu", "--lib", "--profile", "check"]
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


def misnamed(source: str) -> list[str]:
    """BLAS and LAPACK functions that are not linked by the symbol of the newer LAPACK."""
    linked = {name: symbol for symbol, name in LINKED.findall(source)}
    wanted = {
        name: f"{name.removesuffix('_')}$NEWLAPACK" for name in ours(source) if not name.startswith(("vDSP_", "vv"))
    }
    return [f"{name} is linked as {linked.get(name)}, not {s}" for name, s in wanted.items() if linked.get(name) != s]


def c_type(rust: str) -> str:
    """A type of ours in C's words."""
    stars = len(re.findall(r"\*(?:const|mut) ", rust))
    name = re.sub(r"\*(?:const|mut) ", "", rust).strip().split("::")[-1]
    return C_TYPES.get(name, name) + (f" {'*' * stars}" if stars else "")


def types_of(parameters: str, result: str) -> apple.Types:
    """Result and parameters of a declaration of ours, in C's words."""
    pairs = [part.split(":", 1) for part in SPLIT.split(parameters) if part]
    while pairs and pairs[-1][0].endswith("_len") and pairs[-1][1].strip() == "usize":
        pairs.pop()
    return [c_type(result), *(c_type(kind) for _, kind in pairs)]


def agrees(our: str, their: str) -> bool:
    """Is it the type, as far as a caller is concerned?"""
    return our == their or (their, our) == ("enum", "int") or (their == "void *" and our.endswith("*"))


def mismatches(declared: dict[str, tuple[str, str]], theirs: dict[str, apple.Types]) -> list[str]:
    """What differs from Apple's headers."""
    bad = []
    for name, (parameters, result) in declared.items():
        our, their = types_of(parameters, result), list(theirs.get(name, ()))
        if not their:
            bad.append(f"{name}: Accelerate has no such function")
            continue
        if name.endswith("_") and our[0] == "void" and their[0] == "int":
            their[0] = "void"
        if len(our) != len(their) or not all(map(agrees, our, their)):
            bad.append(f"{name}: ours is {our[0]} ({', '.join(our[1:])}), Apple's {their[0]} ({', '.join(their[1:])})")
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


def planted(declared: dict[str, tuple[str, str]], theirs: dict[str, apple.Types], env: dict[str, str]) -> list[str]:
    """Mistakes that a working check must find; returns those that it lets through."""
    through = []
    name = next(n for n in declared if n.startswith("vv"))
    wrong = {name: (declared[name][0].replace("*const f32", "*const f64"), "")}
    if wrong[name] == declared[name] or not clashes(wrong, env):
        through.append(f"a wrong element type in {name}")
    for name, old, new, what in [
        ("cblas_sgemm", ", ldc: c_int", "", "a parameter too few"),
        ("cblas_sgemm", "alpha: f32", "alpha: *const f32", "a pointer in place of a number"),
        ("cblas_sgemm", "alpha: f32", "alpha: f64", "another number"),
        ("cblas_sgemm", "lda: c_int", "lda: isize", "a longer integer"),
        ("cblas_sgemm", "a: *const f32", "a: *const f64", "elements of another type"),
        ("cblas_sgemm", "order: c_int", "order: isize", "a longer enumeration"),
        ("sgetrf_", "ipiv: *mut c_int", "ipiv: *mut isize", "pivots of another width"),
        ("sgetrf_", "ipiv: *mut c_int", "ipiv: *mut f32", "pivots that are no integers"),
        ("ssyevd_", "jobz: *const c_char", "jobz: *const c_int", "a letter that is none"),
        ("dgeqrf_", "tau: *mut f64", "tau: *mut f32", "elements of another type in LAPACK"),
        ("vDSP_vadd", "n: usize", "n: isize", "a signed length"),
    ]:
        parameters = declared[name][0]
        text = parameters.replace(old, new)
        if text == parameters or not mismatches({name: (text, "")}, theirs):
            through.append(f"{what} in {name}")
    if not mismatches({"cblas_sgemm": (declared["cblas_sgemm"][0], "f32")}, theirs):
        through.append("a result that there is not")
    if not mismatches({"cblas_sgemn": declared["cblas_sgemm"]}, theirs):
        through.append("a misspelt name")
    return through


def check(env: dict[str, str]) -> None:
    """End with what is wrong, if anything is."""
    source, theirs = expand(env), apple.functions()
    declared = ours(source)
    bad = mismatches(declared, theirs) + clashes(declared, env) + misnamed(source)
    if not misnamed(source.replace("sgetrf$NEWLAPACK", "sgetrf_$NEWLAPACK")):
        bad.append("the check itself lets a symbol with Fortran's underscore through")
    bad += [f"the check itself lets {mistake} through" for mistake in planted(declared, theirs, env)]
    if bad:
        raise SystemExit("\n".join(f"cross: {line}" for line in bad))
    kinds = [sum(name.startswith(prefix) for name in declared) for prefix in ("vDSP_", "vv", "cblas_")]
    rest = len(declared) - sum(kinds)
    counts = "{} of vDSP, {} of vForce, {} of cblas".format(*kinds)
    say(f"declarations have the types of Apple's headers: {counts}, {rest} of LAPACK; planted mistakes are found")
