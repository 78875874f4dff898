"""A server of OpenAI's HTTP API over one model: `python -m lucid.llm serve`.

Connections, keys and limits are Rust's (`lucid::llm::http`); here requests become sequences of a `Batcher`, which runs
them together, and its tokens become answers. One thread does all: what arrives is taken between two steps of the batch.
"""

from __future__ import annotations

import json
import time
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.llm import api
from lucid.llm.api import Body, Choice, Job, Refused
from lucid.llm.batching import Batcher, Request, Step
from lucid.llm.constraint import Constraint, Vocabulary
from lucid.llm.generation import padded
from lucid.llm.model import CausalLM
from lucid.llm.prefix import PrefixCache
from lucid.llm.tokenizer import Tokenizer


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class Server:
    """Serves a model.

    Args:
        model: The model.
        tokenizer: Its tokenizer, with a chat template for `/v1/chat/completions`.
        name: What clients call the model.
        host: An IP address. Others than loopback need an `api_key`.
        port: The port; 0 takes a free one.
        api_key: What clients send as `Authorization: Bearer`.
        body_limit: The most bytes of a request. Default: 4 MiB.
        max_requests: The most requests that wait or run; more get status 429. Default: 256.
        max_batch: The most sequences that run at once. Default: 32.
        max_context: The most tokens of a sequence; the model's context where none is given.
        prefix_bytes: Memory for keys and values of earlier prompts. Default: 256 MiB.

    Raises ValueError for an address that is not loopback without a key, and where nobody can listen there.
    """

    def __init__(
        self,
        model: CausalLM,
        tokenizer: Tokenizer,
        name: str = "lucid",
        host: str = "127.0.0.1",
        port: int = 8000,
        api_key: str | None = None,
        body_limit: int = 4 << 20,
        max_requests: int = 256,
        max_batch: int = 32,
        max_context: int | None = None,
        prefix_bytes: int = 256 << 20,
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        if max_context is not None and max_context < 2:
            raise errors.ValueError(f"serve: max_context must be at least 2, got {max_context}")
        self.context = min(model.config.context, max_context or model.config.context)
        prefixes = PrefixCache(model, prefix_bytes) if prefix_bytes else None
        self._batcher = Batcher(model, tokenizer, max_batch, prefixes=prefixes)
        self._vocabulary: Vocabulary | None = None
        self._jobs: dict[int, Job] = {}
        self._of: dict[Request, tuple[Job, Choice]] = {}
        self._stopping = False
        self._started = int(time.time())
        self._http = _C._HttpServer(host, port, api_key, body_limit, max_requests)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._http.address()
        return host, port

    def stop(self) -> None:
        """Takes no more requests; `run` returns when those that run are answered. May be called from any thread."""
        self._stopping = True
        self._http.close()

    def run(self, patience: float = 30.0) -> None:
        """Serves until `stop`, and then at most `patience` seconds longer."""
        end: float | None = None
        try:
            while True:
                if self._stopping:
                    end = end or time.monotonic() + patience
                    if time.monotonic() > end or (self._batcher.idle and self._http.open() == 0):
                        break
                wait = 0.1 if self._batcher.idle else 0.0
                event = self._http.next(wait)
                while event is not None:
                    self._take(event)
                    event = self._http.next(0.0)
                if not self._batcher.idle:
                    self._step()
        finally:
            self._http.stop(1.0 if end is None else 5.0)

    def _take(self, event: Any) -> None:
        if len(event) == 1:
            self._drop(event[0])
            return
        number, method, path, data = event
        try:
            self._route(number, method, path, data)
        except Refused as e:
            self._fail(number, e)
        except (errors.LucidError, RecursionError) as e:
            self._fail(number, Refused(str(e)))
        except Exception as e:  # What one request does must end no other.
            self._fail(number, Refused(f"the server failed: {type(e).__name__}: {e}", 500))

    def _fail(self, number: int, why: Refused) -> None:
        self._drop(number)
        self._http.respond(number, why.status, json.dumps(why.body()).encode())

    def _drop(self, number: int) -> None:
        """Forgets a job, and ends what runs for it."""
        job = self._jobs.pop(number, None)
        for choice in job.choices if job is not None else ():
            if self._of.pop(choice.request, None) is not None and choice.finish_reason is None:
                self._batcher.cancel(choice.request)

    def _route(self, number: int, method: str, path: str, data: bytes) -> None:
        path = path.rstrip("/")
        posts = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embeddings,
        }
        if path in posts:
            if method != "POST":
                raise Refused(f"{path} takes POST, not {method}", 405)
            body = Body(data)
            asked = body.get("model", str, self.name)
            if asked != self.name:
                raise Refused(
                    f"the model {asked!r} is not served here; {self.name!r} is", 404, "model", "model_not_found"
                )
            posts[path](number, body)
            return
        card = {"id": self.name, "object": "model", "created": self._started, "owned_by": "lucid"}
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [card]},
            f"/v1/models/{self.name}": card,
            "/health": {"status": "ok", "running": self._batcher.running, "waiting": len(self._batcher.waiting)},
        }
        if path not in answers:
            raise Refused(f"there is no {method} {path}", 404)
        if method != "GET":
            raise Refused(f"{path} takes GET, not {method}", 405)
        self._http.respond(number, 200, json.dumps(answers[path]).encode())

    def _constraint(self, body: Body) -> Any:
        """What makes a constraint for each choice, or None. `regex` and `grammar` go beyond OpenAI's API."""
        wanted = body.get("response_format", dict, {"type": "text"})
        kind = wanted.get("type")
        regex, grammar = body.get("regex", str), body.get("grammar", str)
        if kind not in ("text", "json_object", "json_schema"):
            raise Refused(f"response_format of type {kind!r} is not known", param="response_format")
        if kind == "text" and regex is None and grammar is None:
            return None
        if (kind != "text") + (regex is not None) + (grammar is not None) > 1:
            raise Refused("give one of response_format, regex and grammar", param="response_format")
        if self._vocabulary is None:
            ends = self.model.config.eos_token_id
            if not ends:
                raise Refused("the model has no end token, which constrained output needs", param="response_format")
            self._vocabulary = Vocabulary(self.tokenizer, self.model.config.vocab_size, ends[0])
        vocabulary = self._vocabulary

        def make() -> Constraint:
            if regex is not None:
                return vocabulary.regex(regex)
            if grammar is not None:
                return vocabulary.grammar(grammar)
            if kind == "json_object":
                return vocabulary.json_schema({"type": "object"})
            given = wanted.get("json_schema")
            schema = given.get("schema") if isinstance(given, dict) else None
            if schema is None:
                raise Refused("response_format.json_schema has no schema", param="response_format")
            return vocabulary.json_schema(schema)

        return make

    def _chat(self, number: int, body: Body) -> None:
        tools = api.tools_of(body)
        messages = api.messages_of(body)
        try:
            text = self.tokenizer.apply_chat_template(messages, tools=tools)
            prompt = self.tokenizer.encode(text, False)
        except errors.LucidError as e:
            raise Refused(str(e), param="messages") from None
        top = body.integer("top_logprobs", 0, 0, 20) if body.get("logprobs", bool, False) else None
        most = body.integer("max_completion_tokens", None, 1, 1 << 30) or body.integer("max_tokens", None, 1, 1 << 30)
        self._submit(Job(number, True, body, self.name), body, [prompt], most, top, [""], tools is not None)

    def _completion(self, number: int, body: Body) -> None:
        prompts = api.prompts_of(body.values.get("prompt"), "prompt", self.tokenizer)
        if body.get("suffix", str):
            raise Refused("suffix is not supported", param="suffix")
        if body.integer("best_of", None, 1, api.MOST_CHOICES) not in (None, body.integer("n", 1, 1, api.MOST_CHOICES)):
            raise Refused("best_of other than n is not supported", param="best_of")
        echoes = [self.tokenizer.decode(p) if body.get("echo", bool, False) else "" for p in prompts]
        top, most = body.integer("logprobs", None, 0, 20), body.integer("max_tokens", 16, 1, 1 << 30)
        self._submit(Job(number, False, body, self.name), body, prompts, most, top, echoes, False)

    def _submit(
        self,
        job: Job,
        body: Body,
        prompts: list[list[int]],
        most: int | None,
        top: int | None,
        echoes: list[str],
        with_tools: bool,
    ) -> None:
        count = body.integer("n", 1, 1, api.MOST_CHOICES) or 1
        if count * len(prompts) > api.MOST_CHOICES:
            raise Refused(f"at most {api.MOST_CHOICES} choices are made for one request", param="n")
        stops, constraint = api.stops_of(body), self._constraint(body)
        for prompt, echo in zip(prompts, echoes, strict=True):
            room = self.context - len(prompt)
            if room < 1 or (most is not None and most > room):
                why = f"{len(prompt)} tokens" + (f" and {most} new ones" if most else "")
                raise Refused(
                    f"{why} do not fit into the context of {self.context}", code="context_length_exceeded"
                )  # fmt: skip
            job.prompt_tokens += len(prompt)
            for i in range(count):
                sampler = api.sampler_of(body)
                if sampler.seed is not None:
                    # Choices differ, and are the same the next time.
                    sampler.seed = (sampler.seed + i) % (1 << 63)
                request = Request(
                    prompt, most or room, sampler, stops, None, top, constraint() if constraint is not None else None
                )
                job.choices.append(Choice(len(job.choices), request, echo, with_tools))
        self._jobs[job.number] = job
        for choice in job.choices:
            self._of[choice.request] = job, choice
            self._batcher.submit(choice.request)
        if job.stream:
            self._http.stream(job.number)
            if job.chat:
                for choice in job.choices:
                    self._http.send(job.number, _event(job.chunk(self.tokenizer, choice, "", None)))

    def _step(self) -> None:
        try:
            steps = self._batcher.step()
        except Exception as e:  # Memory that is short, say: those that run fail, the server goes on.
            self._batcher = Batcher(
                self.model, self.tokenizer, self._batcher.max_batch, self._batcher.chunk, self._batcher.prefixes
            )
            self._of.clear()
            why = Refused(f"the model failed: {type(e).__name__}: {e}", 500)
            for number, job in list(self._jobs.items()):
                if job.stream:
                    self._http.send(number, _event(why.body()))
                    self._http.finish(number)
                else:
                    self._http.respond(number, why.status, json.dumps(why.body()).encode())
            self._jobs.clear()
            return
        for step in steps:
            self._show(step)

    def _show(self, step: Step) -> None:
        found = self._of.get(step.request)
        if found is None:
            return
        job, choice = found
        said = choice.add(step)
        if choice.finish_reason is not None:
            del self._of[step.request]
        if job.stream:
            worth = said or choice.finish_reason is not None or step.logprob is not None
            if worth and not self._http.send(job.number, _event(job.chunk(self.tokenizer, choice, said, step))):
                self._drop(job.number)
                return
        if not job.done:
            return
        del self._jobs[job.number]
        if job.stream:
            if job.with_usage:
                self._http.send(job.number, _event(job.last_chunk()))
            self._http.send(job.number, b"data: [DONE]\n\n")
            self._http.finish(job.number)
        else:
            self._http.respond(job.number, 200, json.dumps(job.whole(self.tokenizer)).encode())

    def _embeddings(self, number: int, body: Body) -> None:
        prompts = api.prompts_of(body.values.get("input"), "input", self.tokenizer)
        kind = body.get("encoding_format", str, "float")
        size = self.model.config.hidden_size
        if kind not in ("float", "base64"):
            raise Refused("encoding_format must be float or base64", param="encoding_format")
        if body.integer("dimensions", size, 1, 1 << 30) != size:
            raise Refused(f"the model's embeddings have {size} dimensions", param="dimensions")
        for prompt in prompts:
            if len(prompt) > self.context:
                why = f"{len(prompt)} tokens do not fit into the context of {self.context}"
                raise Refused(why, code="context_length_exceeded")
            if max(prompt) >= self.model.config.vocab_size or min(prompt) < 0:
                raise Refused("input has tokens outside of the vocabulary", param="input")
        vectors = [embed(self.model, [p]).tolist()[0] for p in prompts]
        total = sum(map(len, prompts))
        answer = {
            "object": "list",
            "data": api.embedding_data(vectors, kind == "base64"),
            "model": self.name,
            "usage": {"prompt_tokens": total, "total_tokens": total},
        }
        self._http.respond(number, 200, json.dumps(answer).encode())


@lucid.no_grad()
def embed(model: CausalLM, prompts: list[list[int]]) -> Tensor:
    """The mean of each prompt's last hidden states, of length 1: (prompts, hidden_size), float32."""
    tokens, padding = padded(prompts, model.device)
    hidden = model.hidden(tokens, padding=padding).to(lucid.float32)
    if padding is not None:
        at = lucid.arange(tokens.shape[1], device=model.device)
        hidden = hidden.masked_fill((at < padding[:, None])[..., None], 0.0)
    made: Tensor = lucid.nn.functional.normalize(hidden.sum(1), dim=-1)
    return made
