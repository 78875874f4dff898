"""Calls of functions in what a model writes: `<tool_call>` blocks (Hermes, Qwen) and bare JSON (Llama 3, Mistral)."""

from __future__ import annotations

import json
from typing import Any

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _call(value: Any) -> tuple[str, str] | None:
    """Name and arguments, as JSON text, of an object that is a call."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    given = value.get("arguments", value.get("parameters"))
    if isinstance(given, str):
        return value["name"], given
    return (value["name"], json.dumps(given)) if isinstance(given, dict) else None


def _calls(text: str) -> list[tuple[str, str]] | None:
    """The calls that a text is, none but them; None where it is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    made = [_call(v) for v in (value if isinstance(value, list) else [value])]
    good = [m for m in made if m is not None]
    return good if good and len(good) == len(made) else None


class CallParser:
    """Takes a text as it comes apart into what is said and what is called."""

    def __init__(self) -> None:
        self._held = ""
        self._begun = False

    def add(self, text: str) -> str:
        """What of the text so far is said for sure, and was not given yet."""
        self._held += text
        if not self._begun:
            start = self._held.lstrip()
            # Nothing but JSON may be calls; it is known at the end.
            if not start or start[0] in "{[":
                return ""
            self._begun = True
        at = self._held.find(_OPEN)
        if at < 0:
            at = len(self._held)
            at -= max((n for n in range(1, len(_OPEN)) if self._held.endswith(_OPEN[:n])), default=0)
        said, self._held = self._held[:at], self._held[at:]
        return said

    def finish(self) -> tuple[str, list[tuple[str, str]]]:
        """The rest of what is said, and the calls: name and arguments as JSON text."""
        whole = _calls(self._held) if not self._begun else None
        if whole is not None:
            return "", whole
        said, calls = "", []
        rest = self._held
        while rest:
            before, opened, after = rest.partition(_OPEN)
            said += before
            if not opened:
                break
            inner, _, rest = after.partition(_CLOSE)
            found = _calls(inner)
            if found is None:
                # Not what it seemed to be: nothing is lost.
                said += opened + inner
            else:
                calls += found
        return said if said.strip() else "", calls
