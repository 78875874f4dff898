"""Output that keeps to a JSON schema, a regular expression or a grammar, by the `llguidance` crate."""

from __future__ import annotations

import json
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.llm.tokenizer import Tokenizer


class Constraint:
    """What one output keeps to, and how far it has come. `Vocabulary.json_schema`, `regex` and `grammar` make it.

    Args:
        engine (native constraint): the engine's state.

    Example:
        >>> import json, pathlib, tempfile
        >>> model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "</s>": 2}, "unk_token": "a"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
        ...     tokenizer = lucid.llm.load_tokenizer(folder)
        >>> constraint = lucid.llm.Vocabulary(tokenizer, vocab_size=3, end=2).regex("ab")
        >>> constraint.masked(lucid.zeros(3)).tolist()  # only "a" can begin
        [[0.0, -inf, -inf]]
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def masked(self, logits: Tensor) -> Tensor:
        """Logits (1, V), minus infinity for tokens that may not come next."""
        allowed = lucid.frombuffer(bytearray(self._engine.allowed()), dtype=lucid.uint8).to(logits.device)
        return logits.masked_fill((allowed == 0)[None], float("-inf"))

    def take(self, token: int) -> None:
        """Takes the token that was chosen. Raises ValueError for one that was not allowed."""
        # Where nothing can follow, the end token is all that is allowed, and the engine takes no more.
        if not self.complete:
            self._engine.take(token)

    @property
    def complete(self) -> bool:
        """Whether the output has ended."""
        return bool(self._engine.is_complete())


class Vocabulary:
    """A tokenizer's tokens, prepared once for any number of constraints.

    Args:
        tokenizer (Tokenizer): gives the tokens' texts.
        vocab_size (int): how many logits the model gives.
        end (int): the token that ends an output.

    Raises:
        ValueError: `end` is outside of the vocabulary.

    Example:
        >>> import json, pathlib, tempfile
        >>> model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "</s>": 2}, "unk_token": "a"}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
        ...     tokenizer = lucid.llm.load_tokenizer(folder)
        >>> vocabulary = lucid.llm.Vocabulary(tokenizer, vocab_size=3, end=2)
        >>> constraint = vocabulary.regex("b+")
        >>> constraint.take(1)
        >>> constraint.masked(lucid.zeros(3)).tolist()  # another "b", or the end
        [[-inf, 0.0, 0.0]]
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end: int) -> None:
        self._engine = _C._Vocabulary(tokenizer._engine, vocab_size, end)

    def json_schema(self, schema: Any) -> Constraint:
        """Output is JSON of this schema: a dict, or True for any JSON.

        Raises ValueError for schemas that are damaged or ask for what is not supported.
        """
        try:
            text = json.dumps(schema)
        except (TypeError, ValueError, RecursionError) as e:
            raise errors.ValueError(f"constraint: the schema has no JSON form: {e}") from None
        return Constraint(self._engine.constraint("json_schema", text))

    def regex(self, pattern: str) -> Constraint:
        """Output matches a regular expression as a whole. Raises ValueError for one that is damaged."""
        return Constraint(self._engine.constraint("regex", pattern))

    def grammar(self, text: str) -> Constraint:
        """Output is of a context-free grammar in Lark's notation. Raises ValueError for one that is damaged."""
        return Constraint(self._engine.constraint("lark", text))
