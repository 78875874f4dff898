"""The server: OpenAI's client, 64 clients at once, limits, keys, cancellation, and stopping."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import openai
import pytest
from lucid import llm
from lucid.llm import api
from lucid.llm.server import Server

from tests.python.parity.llm.letters import letters, small
from tests.python.tolerances import within

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def model() -> llm.CausalLM:
    return small()


@pytest.fixture
def serve(model: llm.CausalLM) -> Iterator[Callable[..., Server]]:
    running: list[tuple[Server, threading.Thread]] = []

    def start(**options: Any) -> Server:
        server = Server(model, letters(), "small", port=0, **options)
        thread = threading.Thread(target=server.run, args=(10.0,))
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


def client_of(server: Server, key: str = "none", **options: Any) -> openai.OpenAI:
    host, port = server.address
    return openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key=key, timeout=60, **options)


def alone(model: llm.CausalLM, text: str, new: int, **options: Any) -> llm.Generated:
    """What the model writes without a server."""
    tokenizer = letters()
    return llm.generate(model, [tokenizer.encode(text)], new, tokenizer, **options)[0]


def test_chat(model: llm.CausalLM, serve: Callable[..., Server]) -> None:
    client = client_of(serve())
    assert [m.id for m in client.models.list()] == ["small"] and client.models.retrieve("small").id == "small"
    messages: Any = [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    wanted = alone(model, "s:x\nu:ab\na:", 12)
    made = client.chat.completions.create(
        model="small", messages=messages, max_completion_tokens=12, temperature=0, logprobs=True, top_logprobs=3
    )
    choice = made.choices[0]
    assert choice.message.content == wanted.text and choice.finish_reason == wanted.finish_reason
    assert made.usage is not None and made.usage.prompt_tokens == 11
    assert made.usage.completion_tokens == len(wanted.tokens)
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert len(choice.logprobs.content) == len(wanted.tokens)
    assert all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in choice.logprobs.content)
    stream = client.chat.completions.create(
        model="small",
        messages=messages,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == wanted.text
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].usage == made.usage
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == wanted.finish_reason
    # Choices differ by seed, and are the same the next time.
    options: dict[str, Any] = {"model": "small", "messages": messages, "max_tokens": 8, "n": 3, "seed": 5}
    first, second = (client.chat.completions.create(**options) for _ in range(2))
    texts = [c.message.content for c in first.choices]
    assert texts == [c.message.content for c in second.choices] and len(set(texts)) > 1
    assert [c.index for c in first.choices] == [0, 1, 2]


def test_completions_and_embeddings(model: llm.CausalLM, serve: Callable[..., Server]) -> None:
    client = client_of(serve())
    texts = ["abc", "hello you", "z"]
    made = client.completions.create(model="small", prompt=texts, max_tokens=9, temperature=0, echo=True, logprobs=2)
    for choice, text in zip(made.choices, texts, strict=True):
        wanted = alone(model, text, 9)
        assert choice.text == text + wanted.text and choice.finish_reason == wanted.finish_reason
        assert choice.logprobs is not None and choice.logprobs.tokens is not None
        assert len(choice.logprobs.tokens) == len(wanted.tokens)
    stop = alone(model, "abc", 20).text[4:6]
    wanted = alone(model, "abc", 20, stop=[stop])
    for stream in (False, True):
        options: dict[str, Any] = {
            "prompt": letters().encode("abc"),
            "max_tokens": 20,
            "temperature": 0,
            "stop": [stop],
        }
        got: Any = client.completions.create(model="small", stream=stream, **options)
        text = "".join(c.choices[0].text for c in got) if stream else got.choices[0].text
        assert text == wanted.text and stop not in text
    biased = client.completions.create(model="small", prompt="a", max_tokens=4, temperature=0, logit_bias={"40": 100})
    assert biased.choices[0].text == chr(72) * 4
    for form in ("float", "base64", None):
        more: dict[str, Any] = {} if form is None else {"encoding_format": form}
        vectors: Any = client.embeddings.create(model="small", input=["abc", "xyz!"], **more).data
        if form == "base64":
            continue
        for vector, text in zip(vectors, ["abc", "xyz!"], strict=True):
            with lucid.no_grad():
                hidden = model.hidden(lucid.tensor([letters().encode(text)])).mean(1)[0].numpy()
            np.testing.assert_allclose(vector.embedding, hidden / np.linalg.norm(hidden), **within("near zero"))
    for bad in ([["x"]], [[1e300]], [[float("nan")]], [[None]], [3]):
        for base64 in (False, True):
            with pytest.raises(ValueError, match="embedding_data"):
                api.embedding_data(bad, base64)


def test_constrained_output_and_tools(model: llm.CausalLM, serve: Callable[..., Server]) -> None:
    client = client_of(serve())
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    messages: Any = [{"role": "user", "content": "hi"}]
    for seed in range(4):
        made = client.chat.completions.create(
            model="small", messages=messages, seed=seed, max_tokens=100,
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        )  # fmt: skip
        found = json.loads(made.choices[0].message.content or "")
        assert found["a"] in ("x", "yy") and isinstance(found["b"], bool) and made.choices[0].finish_reason == "stop"
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = r'<tool_call>{"name": "look", "arguments": {"k": [1-9]}}</tool_call>'.replace("{", r"\{").replace("}", r"\}")
    for stream in (False, True):
        got: Any = client.chat.completions.create(
            model="small", messages=messages, tools=tools, max_tokens=100, seed=1, stream=stream,
            extra_body={"regex": f"[a-z]{{3}} {call}"},
        )  # fmt: skip
        if stream:
            chunks = list(got)
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
            calls = [t for c in chunks for t in c.choices[0].delta.tool_calls or []]
            reason = chunks[-1].choices[0].finish_reason
        else:
            message = got.choices[0].message
            text, calls, reason = message.content, message.tool_calls, got.choices[0].finish_reason
            # The prompt showed the function.
            assert got.usage.prompt_tokens == len("look|u:hi\na:")
        assert len(text.strip()) == 3 and reason == "tool_calls" and calls[0].function.name == "look"
        assert json.loads(calls[0].function.arguments)["k"] in range(1, 10)
    answered: Any = [
        *messages,
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "42"},
    ]  # fmt: skip
    assert client.chat.completions.create(model="small", messages=answered, max_tokens=2).choices


def test_64_clients_get_their_own_answers(model: llm.CausalLM, serve: Callable[..., Server]) -> None:
    server = serve(max_batch=16)
    rng = random.Random(0)
    prompts = ["".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 40))) for _ in range(64)]
    prompts[::5] = ["the same beginning " + p for p in prompts[::5]]
    counts = [rng.randrange(1, 24) for _ in prompts]
    wanted = [alone(model, p, n).text for p, n in zip(prompts, counts, strict=True)]
    client = client_of(server, max_retries=0)

    def ask(i: int) -> str:
        options: dict[str, Any] = {"prompt": prompts[i], "max_tokens": counts[i], "temperature": 0}
        if i % 2:
            return client.completions.create(model="small", **options).choices[0].text
        return "".join(c.choices[0].text for c in client.completions.create(model="small", stream=True, **options))

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        for _ in range(2):
            assert list(pool.map(ask, range(64))) == wanted
    assert not server._jobs and not server._of and server._batcher.idle and server._http.open() == 0


def test_who_goes_away_is_forgotten(serve: Callable[..., Server]) -> None:
    server = serve()
    client = client_of(server)
    streams = [
        client.completions.create(model="small", prompt="abc", max_tokens=200, stream=True, logit_bias={"95": -100})
        for _ in range(3)
    ]
    for stream in streams:
        next(iter(stream))
        stream.close()
    host, port = server.address
    body = json.dumps({"model": "small", "prompt": "abc", "max_tokens": 200, "logit_bias": {"95": -100}}).encode()
    with socket.create_connection((host, port)) as raw:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        raw.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.1)
    end = time.monotonic() + 30
    while (server._jobs or not server._batcher.idle) and time.monotonic() < end:
        time.sleep(0.01)
    assert not server._jobs and not server._of and server._http.open() == 0
    assert client.completions.create(model="small", prompt="abc", max_tokens=2).choices[0].text is not None


def request(server: Server, path: str, body: Any, method: str = "POST", **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json", **headers})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)


def test_bad_requests_get_errors(serve: Callable[..., Server]) -> None:
    server = serve(body_limit=5000, max_context=64)
    chat, user = "/v1/chat/completions", [{"role": "user", "content": "a"}]
    bad_schema = {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}
    cases: list[tuple[str, Any, int, str]] = [
        (chat, b"{", 400, "not JSON"),
        (chat, b"[]", 400, "JSON object"),
        (chat, b"\xff\xfe", 400, "not JSON"),
        (chat, b"[" * 4000, 400, "not JSON"),
        (chat, b'{"messages": NaN}', 400, "no JSON"),
        (chat, {}, 400, "messages"),
        (chat, {"messages": [{"content": "x"}]}, 400, "role"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "not text"),
        (chat, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, ""),
        (chat, {"messages": user, "model": "other"}, 404, "other"),
        (chat, {"messages": user, "temperature": 3}, 400, "temperature"),
        (chat, {"messages": user, "temperature": True}, 400, "temperature"),
        (chat, {"messages": user, "top_p": "x"}, 400, "top_p"),
        (chat, {"messages": user, "n": 1000}, 400, "n must"),
        (chat, {"messages": user, "logit_bias": {"x": 1}}, 400, "logit_bias"),
        (chat, {"messages": user, "logit_bias": {"99": 1}}, 400, "vocabulary"),
        (chat, {"messages": user, "response_format": {"type": "xml"}}, 400, "xml"),
        (chat, {"messages": user, "response_format": bad_schema}, 400, ""),
        (chat, {"messages": user, "regex": "("}, 400, ""),
        (chat, {"messages": user, "tools": [1]}, 400, "tools"),
        (chat, {"messages": user, "tools": [], "tool_choice": "required"}, 400, "tool_choice"),
        (chat, {"messages": user, "max_tokens": 64}, 400, "context"),
        (chat, {"messages": [{"role": "user", "content": "a" * 100}]}, 400, "context"),
        ("/v1/completions", {"prompt": []}, 400, "prompt"),
        ("/v1/completions", {"prompt": [1000]}, 400, "tokens must be"),
        ("/v1/completions", {"prompt": [-1]}, 400, "tokens must be"),
        ("/v1/completions", {"prompt": "a", "stop": [""]}, 400, "stop"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, 400, "suffix"),
        ("/v1/embeddings", {"input": [[1000]]}, 400, "vocabulary"),
        ("/v1/embeddings", {"input": "a", "dimensions": 3}, 400, "dimensions"),
        ("/v1/embeddings", {"input": "a" * 100}, 400, "context"),
        ("/v1/nothing", {}, 404, "nothing"),
        (chat, b"x" * 6000, 413, "5000"),
    ]  # fmt: skip
    for path, body, status, words in cases:
        got, answer = request(server, path, body)
        assert got == status and words in answer["error"]["message"], (path, body, got, answer)
    assert request(server, chat, b"", "GET")[0] == 405 and request(server, "/v1/models", {}, "POST")[0] == 405
    assert request(server, chat, {}, **{"Content-Type": "text/plain"})[0] == 415
    assert request(server, "/health", b"", "GET", Host="example.org")[0] == 403
    assert request(server, "/health", b"", "GET")[1]["status"] == "ok"
    assert not server._jobs and not server._of


def test_keys_and_limits(model: llm.CausalLM, serve: Callable[..., Server]) -> None:
    with pytest.raises(lucid.errors.ValueError, match="API key"):
        Server(model, letters(), host="0.0.0.0", port=0)
    for options, words in (
        ({"host": "example.org"}, "host"),
        ({"max_context": 1}, "max_context"),
        ({"api_key": "é"}, "ASCII"),
    ):
        with pytest.raises(lucid.errors.ValueError, match=words):
            Server(model, letters(), port=0, **options)  # type: ignore[arg-type]
    server = serve(api_key="secret", max_requests=2)
    with pytest.raises(openai.AuthenticationError):
        client_of(server, "wrong").models.list()
    client = client_of(server, "secret", max_retries=0)
    assert client.models.list().data[0].id == "small"
    held = [
        client.completions.create(model="small", prompt="a", max_tokens=250, stream=True, logit_bias={"95": -100})
        for _ in range(2)
    ]
    with pytest.raises(openai.RateLimitError):
        client.completions.create(model="small", prompt="a", max_tokens=1)
    for stream in held:
        assert len(list(stream)) >= 250
    with pytest.raises(lucid.errors.ValueError, match="listen"):
        Server(model, letters(), port=server.address[1])


def test_a_signal_ends_after_the_answers(tmp_path: Path, model: llm.CausalLM) -> None:
    llm.save_model(model, tmp_path)
    (tmp_path / "tokenizer.json").write_text(letters()._engine.to_json())
    command = [sys.executable, "-m", "lucid.llm", "serve", "--model", str(tmp_path), "--port", "0", "--device", "cpu"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "py")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stderr is not None
        line = ""
        while "serving" not in line:
            line = process.stderr.readline()
            assert line, "the server ended"
        client = openai.OpenAI(base_url=line.split()[-1], api_key="none", timeout=60)
        stream = client.completions.create(
            model=tmp_path.name, prompt="abc", max_tokens=200, stream=True, logit_bias={"95": -100}
        )
        pieces = iter(stream)
        next(pieces)
        process.send_signal(signal.SIGTERM)
        assert sum(1 for _ in pieces) >= 199
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
