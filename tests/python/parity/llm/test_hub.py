"""Models by id, with a hub on this machine."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lucid
import pytest
from lucid import llm
from lucid.llm import hub
from lucid.llm.__main__ import main

COMMIT = "a" * 40


class Hub(http.server.ThreadingHTTPServer):
    """Lists files and sends them; may break off, send something else, or take no ranges."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.breaks_after: int | None = None
        self.damages = False
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api/models/some/model/revision/main":
            self._send(json.dumps({"sha": COMMIT, "siblings": self._listed()}).encode())
            return
        name = path.removeprefix(f"/some/model/resolve/{COMMIT}/")
        self.server.asked.append((name, self.headers.get("Range")))
        if name not in self.server.files:
            self.send_error(404)
            return
        self._send(self.server.files[name])

    def _listed(self) -> list[dict[str, Any]]:
        made = []
        for name, data in self.server.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
            entry["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if name.endswith(".safetensors"):
                entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            made.append(entry)
        return made

    def _send(self, data: bytes) -> None:
        if self.server.damages and b"safetensors" not in data[:9] and len(data) > 2000:
            data = data[:-1] + bytes([data[-1] ^ 1])
        start = 0
        given = self.headers.get("Range")
        if given and self.server.ranges:
            start = int(given.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if self.server.breaks_after is not None and len(body) > self.server.breaks_after:
            body = body[: self.server.breaks_after]
            self.close_connection = True
        self.wfile.write(body)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    lucid.manual_seed(0)
    model = llm.CausalLM(llm.Config("llama", 64, 32, 32, 1, 2, 1, 16))
    llm.save_model(model, tmp_path / "made")
    files = {p.name: p.read_bytes() for p in (tmp_path / "made").iterdir()}
    files["README.md"] = b"not wanted"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    server = Hub(files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_is_fetched_once_and_found(served: Hub, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(lucid.errors.FileNotFoundError, match="download --model some/model"):
        llm.load_model("some/model")
    assert main(["download", "--model", "some/model"]) == 0
    said = capsys.readouterr()
    assert "model.safetensors" in said.err and "MB" in said.err and "README" not in said.err
    first = len(served.asked)
    assert first == 2
    assert hub.download("some/model", say=lambda _: None) == Path(said.out.strip())
    assert len(served.asked) == first
    x = lucid.tensor([[1, 2, 3]])
    with lucid.no_grad():
        wanted = llm.load_model(tmp_path / "made")(x)
        assert bool((llm.load_model("some/model")(x) == wanted).all())
        assert bool((llm.load_model(f"some/model@{COMMIT}")(x) == wanted).all())
    # The layout is Hugging Face's.
    folder = tmp_path / "cache" / "models--some--model"
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert (folder / "snapshots" / COMMIT / "config.json").is_symlink()


@pytest.mark.parametrize("ranges", [True, False])
def test_what_broke_off_goes_on(served: Hub, ranges: bool) -> None:
    served.breaks_after, served.ranges = 2500, ranges
    with pytest.raises(lucid.errors.FileError, match=r"ended after 2500|2500 bytes read"):
        hub.download("some/model", say=lambda _: None)
    served.breaks_after = None
    said: list[str] = []
    made = hub.download("some/model", say=said.append)
    assert any("going on at 2500" in text for text in said)
    assert ("model.safetensors", "bytes=2500-") in served.asked
    assert (made / "model.safetensors").read_bytes() == served.files["model.safetensors"]


def test_what_is_damaged_is_refused(served: Hub) -> None:
    served.damages = True
    with pytest.raises(lucid.errors.FileError, match="digest"):
        hub.download("some/model", say=lambda _: None)
    assert hub.find("some/model") is None
    served.damages = False
    served.files["../evil.safetensors"] = b"x"
    with pytest.raises(lucid.errors.FileError, match="no path"):
        hub.download("some/model", files=["../evil.safetensors"], say=lambda _: None)
    for name in ("../x", "a/../b", "a//b", "", "a/b/c"):
        with pytest.raises(lucid.errors.ValueError, match="no id"):
            hub.download(name)
    with pytest.raises(lucid.errors.FileError, match="404"):
        hub.download("other/model")
    with pytest.raises(lucid.errors.FileNotFoundError, match=r"x\.gguf"):
        hub.download("some/model", files=["x.gguf"])
