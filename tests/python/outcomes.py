"""What a program gives in either framework, as text that can be compared."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import warnings
from types import ModuleType


def outcome(program: str, module: ModuleType) -> str:
    """What a program gives, in words: its last line, or the builtin errors that what it raises is one of.

    It has the names `torch` (a framework), `nn`, `F`, and `gpu`, of Lucid's GPU device.
    """
    *lines, last = ast.parse(program).body
    assert isinstance(last, ast.Expr), program
    # PyTorch has no such device: what it gives there it gives on the CPU.
    gpu = "gpu" if hasattr(module, "op_schemas") else "cpu"
    names: dict[str, object] = {"torch": module, "nn": module.nn, "F": module.nn.functional, "gpu": gpu}
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            exec(compile(ast.Module(lines, []), "<program>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<program>", "eval"), names)
            return " ".join(str(value).replace("lucid", "torch").split())
        except Exception as e:
            kinds = dict.fromkeys(kind.__name__.lstrip("_") for kind in type(e).__mro__)
            if "LinAlgError" in kinds:
                return "raises LinAlgError"
            plain = {"LookupError", "Exception", "BaseException", "object"}
            return "raises " + ", ".join(k for k in kinds if hasattr(builtins, k) and k not in plain)


def differ(torch: str, lucid: str) -> bool:
    """Are these outcomes different? An error of several kinds is of each."""
    if torch.startswith("raises ") and lucid.startswith("raises "):
        return not set(torch[7:].split(", ")) & set(lucid[7:].split(", "))
    return torch != lucid
