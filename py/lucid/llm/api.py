"""OpenAI's HTTP API as data: requests checked, and answers in the form that clients expect."""

from __future__ import annotations

import json
import math
import struct
import time
import uuid
from base64 import b64encode
from typing import Any

from lucid import errors
from lucid.llm.batching import Request, Step
from lucid.llm.sampling import Sampler
from lucid.llm.tokenizer import Tokenizer
from lucid.llm.tools import CallParser

#: The most choices of one request.
MOST_CHOICES = 128


class Refused(errors.ValueError):
    """A request that is answered with an error."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API writes it."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class Body:
    """A request's JSON object."""

    def __init__(self, data: bytes) -> None:
        def constant(name: str) -> Any:
            raise ValueError(f"{name} is no JSON")

        try:
            self.values = json.loads(data.decode("utf-8"), parse_constant=constant)
        except (ValueError, RecursionError) as e:
            raise Refused(f"the body is not JSON: {e}") from None
        if not isinstance(self.values, dict):
            raise Refused("the body is not a JSON object")

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        """A value of one of these types; the default where it is missing or null."""
        found = self.values.get(name)
        if found is None:
            return default
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if (isinstance(found, bool) and bool not in wanted) or not isinstance(found, wanted):
            names = " or ".join(k.__name__ for k in wanted)
            raise Refused(f"{name} must be {names}, got {type(found).__name__}", param=name)
        return found

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        found = self.get(name, (int, float), default)
        if not low <= found <= high:
            raise Refused(f"{name} must be from {low} to {high}, got {found}", param=name)
        return float(found)

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """An integer from `low` to `high`."""
        found = self.get(name, int, default)
        if found is not None and not low <= found <= high:
            raise Refused(f"{name} must be from {low} to {high}, got {found}", param=name)
        return None if found is None else int(found)


def sampler_of(body: Body) -> Sampler:
    """How tokens are chosen. `top_k`, `min_p` and `repetition_penalty` go beyond OpenAI's API."""
    bias = body.get("logit_bias", dict, {})
    try:
        bias = {int(k): float(v) for k, v in bias.items()}
    except (TypeError, ValueError):
        raise Refused("logit_bias must have numbers of tokens and numbers", param="logit_bias") from None
    if any(not -100 <= v <= 100 for v in bias.values()) or len(bias) > 4096:
        raise Refused("logit_bias must be from -100 to 100, for at most 4096 tokens", param="logit_bias")
    top_p = body.number("top_p", 1.0, 0.0, 1.0)
    return Sampler(
        temperature=body.number("temperature", 1.0, 0.0, 2.0),
        top_k=body.integer("top_k", 0, 0, 1 << 30) or 0,
        # 0 is the best token alone.
        top_p=max(top_p, 1e-9),
        min_p=body.number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=body.number("repetition_penalty", 1.0, 1e-3, 1e3),
        presence_penalty=body.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=body.number("frequency_penalty", 0.0, -2.0, 2.0),
        logit_bias=bias or None,
        seed=body.integer("seed", None, -(1 << 63), (1 << 63) - 1),
    )


def stops_of(body: Body) -> list[str]:
    """The strings that end the text."""
    found = body.get("stop", (str, list), [])
    found = [found] if isinstance(found, str) else found
    if len(found) > 16 or not all(isinstance(s, str) and s for s in found):
        raise Refused("stop must be a text, or at most 16 of them", param="stop")
    return found


def messages_of(body: Body) -> list[dict[str, Any]]:
    """A conversation as chat templates take it."""
    given = body.get("messages", list)
    if not given:
        raise Refused("messages must be a list with at least one message", param="messages")
    made = []
    for i, message in enumerate(given):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refused(f"messages[{i}] must be an object with a role", param="messages")
        content = message.get("content")
        if isinstance(content, list):
            texts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in content]
            if not all(isinstance(t, str) for t in texts):
                raise Refused(
                    f"messages[{i}] has content that is not text, which this model reads not", param="messages"
                )
            content = "".join(t for t in texts if t is not None)
        if content is not None and not isinstance(content, str):
            raise Refused(f"messages[{i}].content must be text", param="messages")
        held = {k: v for k, v in message.items() if k in ("role", "name", "tool_call_id")}
        held["content"] = content or ""
        if message.get("tool_calls") is not None:
            held["tool_calls"] = _tool_calls(message["tool_calls"], i)
        made.append(held)
    return made


def _tool_calls(given: Any, at: int) -> list[Any]:
    """Calls whose arguments are objects, as templates show them."""
    made = []
    for call in given if isinstance(given, list) else [None]:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Refused(f"messages[{at}].tool_calls must be a list of calls of functions", param="messages")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError):
                raise Refused(f"messages[{at}] has arguments that are not JSON", param="messages") from None
        made.append({**call, "function": {**function, "arguments": arguments}})
    return made


def tools_of(body: Body) -> list[Any] | None:
    """The functions that the template is to show."""
    tools = body.get("tools", list)
    choice = body.get("tool_choice", (str, dict), "auto")
    if tools is None or choice == "none":
        return None
    if choice != "auto":
        raise Refused("tool_choice must be auto or none", param="tool_choice")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Refused("tools must be a list of functions with names", param="tools")
    return tools or None


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    text = tokenizer.decode([token], False)
    return {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace"))}


class Choice:
    """One answer of a job, as it grows."""

    def __init__(self, index: int, request: Request, echo: str, with_tools: bool) -> None:
        self.index, self.request = index, request
        self.text = self.pending = echo
        self.calls = CallParser() if with_tools else None
        self.called: list[tuple[str, str]] = []
        self.finish_reason: str | None = None
        self.steps: list[Step] = []

    def add(self, step: Step) -> str:
        """Takes a token; what of the text can be sent."""
        if self.request.top_logprobs is not None:
            self.steps.append(step)
        said = step.text if self.calls is None else self.calls.add(step.text)
        if step.finish_reason is not None:
            self.finish_reason = step.finish_reason
            if self.calls is not None:
                rest, self.called = self.calls.finish()
                said += rest
                if self.called:
                    self.finish_reason = "tool_calls"
        self.text += said
        said, self.pending = self.pending + said, ""
        return said


class Job:
    """A request of a client: its choices, and how it is answered."""

    def __init__(self, number: int, chat: bool, body: Body, model: str) -> None:
        self.number, self.chat, self.model = number, chat, model
        self.stream = bool(body.get("stream", bool, False))
        options = body.get("stream_options", dict, {})
        self.with_usage = self.stream and options.get("include_usage") is True
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.choices: list[Choice] = []
        self.prompt_tokens = 0

    @property
    def done(self) -> bool:
        """Whether all choices have ended."""
        return all(c.finish_reason is not None for c in self.choices)

    def usage(self) -> dict[str, int]:
        """How many tokens were read and written."""
        made = sum(len(c.request.generated) for c in self.choices)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _logprobs(self, tokenizer: Tokenizer, choice: Choice, steps: list[Step]) -> dict[str, Any] | None:
        if choice.request.top_logprobs is None:
            return None
        if self.chat:
            content = [
                {
                    **_token(tokenizer, s.token, s.logprob or 0.0),
                    "top_logprobs": [_token(tokenizer, t, p) for t, p in s.top],
                }
                for s in steps
            ]
            return {"content": content, "refusal": None}
        texts = [tokenizer.decode([s.token], False) for s in steps]
        offsets, at = [], 0
        for text in texts:
            offsets.append(at)
            at += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [s.logprob for s in steps],
            "top_logprobs": [{tokenizer.decode([t], False): p for t, p in s.top} for s in steps],
            "text_offset": offsets,
        }

    def whole(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """The answer, when all choices have ended."""
        choices = []
        for c in self.choices:
            made: dict[str, Any] = {"index": c.index, "finish_reason": c.finish_reason}
            made["logprobs"] = self._logprobs(tokenizer, c, c.steps)
            if self.chat:
                message: dict[str, Any] = {"role": "assistant", "content": c.text, "refusal": None}
                if c.called:
                    message["content"] = c.text or None
                    message["tool_calls"] = _calls_of(c.called, False)
                made["message"] = message
            else:
                made["text"] = c.text
            choices.append(made)
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind), "choices": choices, "usage": self.usage()}

    def chunk(self, tokenizer: Tokenizer, choice: Choice, said: str, step: Step | None) -> dict[str, Any]:
        """A piece of a stream: the role (without a step), or what a token adds."""
        made: dict[str, Any] = {"index": choice.index, "finish_reason": choice.finish_reason, "logprobs": None}
        if step is not None:
            made["logprobs"] = self._logprobs(tokenizer, choice, [step])
        if self.chat:
            delta: dict[str, Any] = {"content": said} if said else {}
            if step is None:
                delta = {"role": "assistant", "content": ""}
            if choice.finish_reason is not None and choice.called:
                delta["tool_calls"] = _calls_of(choice.called, True)
            made["delta"] = delta
        else:
            made["text"] = said
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        out = {**self._head(kind), "choices": [made]}
        return {**out, "usage": None} if self.with_usage else out

    def last_chunk(self) -> dict[str, Any]:
        """The piece with the usage."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return {**self._head(kind), "choices": [], "usage": self.usage()}


def _calls_of(calls: list[tuple[str, str]], with_index: bool) -> list[dict[str, Any]]:
    made = []
    for i, (name, arguments) in enumerate(calls):
        call: dict[str, Any] = {"index": i} if with_index else {}
        call.update(id=f"call_{uuid.uuid4().hex[:24]}", type="function")
        call["function"] = {"name": name, "arguments": arguments}
        made.append(call)
    return made


def prompts_of(value: Any, name: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Prompts that are a text, tokens, or a list of either."""

    def is_tokens(x: Any) -> bool:
        return isinstance(x, list) and bool(x) and all(type(t) is int for t in x)

    if isinstance(value, str) or is_tokens(value):
        value = [value]
    if not isinstance(value, list) or not value or len(value) > MOST_CHOICES:
        raise Refused(f"{name} must be a text, tokens, or a list of at most {MOST_CHOICES} of them", param=name)
    made = []
    for one in value:
        if isinstance(one, str):
            try:
                made.append(tokenizer.encode(one))
            except errors.LucidError as e:
                raise Refused(str(e), param=name) from None
        elif is_tokens(one):
            made.append(list(one))
        else:
            raise Refused(f"{name} must be a text, tokens, or a list of either", param=name)
    if not all(made):
        raise Refused(f"{name} has a text without tokens", param=name)
    return made


def embedding_data(vectors: list[list[float]], base64: bool) -> list[dict[str, Any]]:
    """Vectors as `/v1/embeddings` gives them. Raises ValueError for what are no lists of finite numbers of float32."""

    def value(row: list[float]) -> Any:
        try:
            if not all(math.isfinite(x) for x in row):
                raise errors.ValueError("embedding_data: a vector has numbers that are not finite")
            packed = struct.pack(f"<{len(row)}f", *row)
        except (TypeError, struct.error, OverflowError) as e:
            raise errors.ValueError(f"embedding_data: expected lists of numbers of float32: {e}") from None
        return b64encode(packed).decode() if base64 else row

    return [{"object": "embedding", "index": i, "embedding": value(row)} for i, row in enumerate(vectors)]
