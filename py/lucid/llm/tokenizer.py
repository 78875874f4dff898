"""Tokenizers with their chat templates, from a folder or a GGUF file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lucid import _C, errors
from lucid.llm.hub import resolve
from lucid.llm.loading import read_json


class Tokenizer:
    """Turns text into tokens and back, by the `tokenizers` crate. `load_tokenizer` makes it.

    Args:
        engine (native tokenizer): the engine's.
        special (dict of str to str, optional): texts of special tokens, by names such as `eos_token`. Default: none.
        chat_template (str, optional): the Jinja template of `apply_chat_template`. Default: none.

    Example:
        >>> import json, pathlib, tempfile
        >>> model = {"type": "WordLevel", "vocab": {"hello": 0, "world": 1, "?": 2}, "unk_token": "?"}
        >>> text = {"version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "model": model}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(text))
        ...     tokenizer = lucid.llm.load_tokenizer(folder)
        >>> tokenizer.encode("hello world"), tokenizer.decode([1, 0])
        ([0, 1], 'world hello')
    """

    def __init__(self, engine: Any, special: dict[str, str] | None = None, chat_template: str | None = None) -> None:
        self._engine = engine
        self.special = special or {}
        self.chat_template = chat_template

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return int(self._engine.vocab_size())

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text, with those around it that the model wants."""
        if not isinstance(text, str):
            raise errors.TypeError(f"encode: expected a text, got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise errors.ValueError(f"encode: the text is not valid Unicode: {e}") from None
        return list(self._engine.encode(text, add_special_tokens))

    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        ids = [int(t) for t in tokens]
        if any(not 0 <= t < 1 << 32 for t in ids):
            raise errors.ValueError(f"decode: tokens are numbers from 0 on, got {min(ids)} to {max(ids)}")
        return str(self._engine.decode(ids, skip_special_tokens))

    def token_to_id(self, token: str) -> int | None:
        """The number of a token, None where it has none."""
        found: int | None = self._engine.token_to_id(token)
        return found

    def id_to_token(self, number: int) -> str | None:
        """The token of a number, None where there is none."""
        found: str | None = self._engine.id_to_token(number)
        return found

    def stream(self) -> Stream:
        """Decodes tokens one by one."""
        return Stream(self)

    def apply_chat_template(
        self,
        messages: Sequence[dict[str, Any]],
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt of a conversation, by the tokenizer's template or another one.

        Args:
            messages: `{"role": …, "content": …}` each, the oldest first.
            add_generation_prompt: End with what begins the model's answer.
            chat_template: Jinja text.
            tools: Descriptions of functions, for templates that show them.
            variables: What else the template asks for.

        Raises ValueError, with the template's line, where it is damaged, raises or takes too long, and where there is
        none.
        """
        template = chat_template or self.chat_template
        if template is None:
            raise errors.ValueError("apply_chat_template: the tokenizer has no chat template; give one")
        held = {**self.special, **variables, "messages": list(messages), "add_generation_prompt": add_generation_prompt}
        if tools is not None:
            held["tools"] = list(tools)
        try:
            text = json.dumps(held)
        except (TypeError, ValueError, RecursionError) as e:
            raise errors.ValueError(f"apply_chat_template: the messages have no JSON form: {e}") from None
        return str(_C._render_chat(template, text))


class Stream:
    """The text of tokens as they come: whole characters only."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.start = 0
        self.shown = 0

    def add(self, token: int) -> str:
        """What the token adds to the text, perhaps nothing yet."""
        self.tokens.append(token)
        before = self.tokenizer.decode(self.tokens[self.start : self.shown])
        after = self.tokenizer.decode(self.tokens[self.start :])
        if len(after) <= len(before) or (after.endswith("\ufffd") and len(self.tokens) - self.shown < 8):
            return ""
        # The tokens shown last stay: what follows may be written differently after them.
        self.start, self.shown = self.shown, len(self.tokens)
        return after[len(before) :]

    def finish(self) -> str:
        """What is left."""
        before = self.tokenizer.decode(self.tokens[self.start : self.shown])
        after = self.tokenizer.decode(self.tokens[self.start :])
        self.start = self.shown = len(self.tokens)
        return after[len(before) :]


def _content(token: Any) -> str | None:
    return token.get("content") if isinstance(token, dict) else token if isinstance(token, str) else None


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Loads the tokenizer of a Hugging Face folder, with its special tokens and chat template, or of a GGUF file.

    Args:
        path (str or os.PathLike): a folder with `tokenizer.json`, a GGUF file, or the id of a model in the hub's cache.

    Returns:
        Tokenizer: with `encode`, `decode` and `apply_chat_template`.

    Raises:
        FileNotFoundError: there is no such file or folder, or no `tokenizer.json` in it.
        ValueError: it is damaged, or of a kind that is not read.

    Example:
        >>> import json, pathlib, tempfile
        >>> model = {"type": "WordLevel", "vocab": {"hello": 0, "?": 1}, "unk_token": "?"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
        ...     lucid.llm.load_tokenizer(folder).vocab_size
        2
    """
    place = resolve(path)
    if not place.exists():
        raise errors.FileNotFoundError(f"{place}: there is no such file or folder")
    if not place.is_dir():
        return _of_gguf(place)
    file = place / "tokenizer.json"
    if not file.exists():
        raise errors.FileNotFoundError(f"{file}: there is no such file; tokenizers without it are not read")
    engine = _C._Tokenizer.from_json(file.read_bytes())
    settings = read_json(place / "tokenizer_config.json") if (place / "tokenizer_config.json").exists() else {}
    named = ((n, _content(settings.get(n))) for n in ("bos_token", "eos_token", "unk_token", "pad_token"))
    template = settings.get("chat_template")
    if isinstance(template, list):
        found = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = found.get("default")
    if (place / "chat_template.jinja").exists():
        template = (place / "chat_template.jinja").read_text(encoding="utf-8")
    return Tokenizer(engine, {n: t for n, t in named if t is not None}, template)


def _of_gguf(path: Path) -> Tokenizer:
    metadata, _ = _C._gguf_header(str(path))
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    special = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")):
        number = metadata.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            special[name] = tokens[number]
    template = metadata.get("tokenizer.chat_template")
    return Tokenizer(_C._Tokenizer.from_gguf(str(path)), special, template if isinstance(template, str) else None)


def pieces(tokenizer: Tokenizer, tokens: Iterable[int]) -> Iterator[str]:
    """The text of tokens, piece by piece."""
    stream = tokenizer.stream()
    for token in tokens:
        yield stream.add(token)
    yield stream.finish()
