# ruff: noqa: UP006, UP007, UP035, UP045
"""Names of PyTorch's compilers, hub and build that programs use: what they return, and what they say."""

from __future__ import annotations

import copy
import http.server
import importlib
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import lucid
import numpy as np
import pytest
import torch
from lucid import _warnings

from tests.python.tolerances import TABLE

BOTH = [torch, lucid]


@pytest.fixture(autouse=True)
def warned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_warnings, "_given", set())


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_scripts_and_traces_are_what_they_were_made_of(device: str) -> None:
    class Net(lucid.nn.Module):
        size: lucid.jit.Final[int]

        def __init__(self) -> None:
            super().__init__()
            self.size, self.line = 3, lucid.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.other(x) if lucid.jit.is_scripting() else self.line(x)

        @lucid.jit.ignore
        def other(self, x: Any) -> Any:
            return x

        @lucid.jit.unused
        def unused(self, x: Any) -> Any:
            return x

        @lucid.jit.export
        def exported(self, x: Any) -> Any:
            return x

    net, x = Net().to(device), lucid.ones(1, 3, device=device)
    assert lucid.jit.script(net) is net
    assert lucid.jit.trace(net, x) is net
    assert lucid.jit.trace(net, (x,), check_inputs=[(x,)]) is net
    assert lucid.jit.trace(net, example_kwarg_inputs={"x": x}) is net
    assert lucid.jit.trace_module(net, {"forward": x, "exported": (x,)}) is net
    assert not isinstance(net, lucid.jit.ScriptModule)
    assert lucid.jit.freeze(net.eval()) is net
    lucid.jit.script(net)(x).sum().backward()
    assert net.line.weight.grad is not None


def test_decorators_keep_the_function() -> None:
    def f(x: int) -> int:
        return x + 1

    jit = lucid.jit
    for made in (
        *(d(f) for d in (jit.script, jit.ignore, jit.unused, jit.export, jit.script_method, jit.script_if_tracing)),
        *(d(f) for d in (jit.ignore(), jit.ignore(drop=True), jit._overload_method, jit._script_if_tracing)),
        *(d(f) for d in (lucid.compiler.allow_in_graph, lucid._dynamo.assume_constant_result)),
        lucid.compile(f, disable=True),
    ):
        assert made is f
    for disable in (lucid.compiler.disable, lucid.compiler.disable(recursive=False), lucid._dynamo.disable()):
        assert disable(f)(1) == 2
        assert lucid.compile(disable(f)).__wrapped__ is f
    with pytest.raises(RuntimeError, match="must be a bool or a function"):
        jit.ignore(3)
    with pytest.raises(RuntimeError, match="class"):
        jit.interface(f)
    assert jit.interface(int) is int
    assert jit.annotate(List[int], []) == []
    assert jit.Attribute(3, int).value == 3


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2], List[int]),
        ([1, "a"], List[int]),
        ([], List[int]),
        ((1, "a"), Tuple[int, str]),
        ((1, 2, 3), Tuple[int, str]),
        ({"a": 1}, Dict[str, int]),
        ({1: 1}, Dict[str, int]),
        (None, Optional[int]),
        (3, Optional[int]),
        ("a", Optional[int]),
        (3, Union[int, str]),
        (3, (str, int)),
        ([[1]], List[List[int]]),
        ([["a"]], List[List[int]]),
        (3, int),
    ],
)
def test_isinstance(value: Any, kind: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert lucid.jit.isinstance(value, kind) is torch.jit.isinstance(value, kind)


def test_futures() -> None:
    for f in BOTH:
        future = f.jit.fork(lambda x: x + 1, f.ones(2))
        assert f.jit.wait(future).tolist() == [2, 2]
        made = f.futures.Future()
        then = made.then(lambda g: g.value() * 2)
        assert not made.done()
        with pytest.raises(RuntimeError):
            made.value()
        made.set_result(4)
        assert then.wait() == 8
        with pytest.raises(RuntimeError):
            made.set_result(5)
        assert f.futures.wait_all([made, then]) == [4, 8]
        assert [g.value() for g in f.futures.collect_all([made, then]).wait()] == [4, 8]
        failed = f.futures.Future()
        failed.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            failed.wait()
    with pytest.raises(ZeroDivisionError):
        lucid.jit.wait(lucid.jit.fork(lambda: 1 // 0))


def test_bad_traces() -> None:
    with pytest.raises(RuntimeError, match="either example_inputs"):
        lucid.jit.trace(lambda x: x, lucid.ones(1), example_kwarg_inputs={"x": lucid.ones(1)})
    for f in BOTH:
        with pytest.raises(AttributeError):
            f.jit.trace_module(f.nn.Linear(1, 1), [f.ones(1)])
        with pytest.raises(RuntimeError, match=r"call \.eval\(\)"):
            f.jit.freeze(f.jit.script(f.nn.Linear(1, 1)))
    numbers = iter(range(99))
    with pytest.warns(UserWarning, match="different results"):
        lucid.jit.trace(lambda x: x + next(numbers), lucid.ones(1))
    # What is drawn is drawn alike in both calls, and leaves the generator as it was.
    lucid.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lucid.jit.trace(lambda x: x + lucid.rand(1), lucid.ones(1))
    after = lucid.rand(1)
    lucid.manual_seed(1)
    assert lucid.equal(after, lucid.rand(1))


SAYS: dict[str, tuple[Any, Any]] = {
    "save": (lambda: lucid.jit.save(None, "x"), "lucid.save"),
    "flatbuffer": (lambda: lucid.jit.save_jit_module_to_flatbuffer(None, "x"), "lucid.save"),
    "unit": (lambda: lucid.jit.CompilationUnit("x"), "Python function"),
    "opnames": (lambda: lucid.jit.export_opnames(None), "lucid.profile"),
    "artifacts": (lambda: lucid.compiler.load_cache_artifacts(b""), "leave it out"),
    "triton": (lambda: lucid.library.triton_op("a::b", mutates_args=()), "lucid.metal"),
    "fallback": (lambda: lucid.library.Library("a", "FRAGMENT").fallback(print), "Library.impl"),
}


@pytest.mark.parametrize("name", SAYS)
def test_what_is_not_there_says_what_to_do(name: str) -> None:
    call, word = SAYS[name]
    with pytest.raises(NotImplementedError, match=word):
        call()


SWITCHES = {
    "fusion": lambda: lucid.jit.set_fusion_strategy([("STATIC", 2)]),
    "onednn": lambda: lucid.jit.enable_onednn_fusion(True),
    "fuser": lambda: lucid.jit.fuser("fuser1").__enter__(),
    "guards": lambda: lucid.compiler.set_enable_guard_collectives(True),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_warn_once_that_they_change_nothing(name: str) -> None:
    with pytest.warns(UserWarning, match="nothing"):
        SWITCHES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SWITCHES[name]()


def test_questions_about_compilers() -> None:
    for f in BOTH:
        assert not f.compiler.is_compiling()
        assert not f.compiler.is_exporting()
        assert not f._dynamo.is_compiling()
        assert not f.jit.is_tracing()
        assert f._C._get_tracing_state() is None
        assert f._C._log_api_usage_once("x") is None
        f._dynamo.mark_static_address(f.ones(1))
        f._dynamo.config.cache_size_limit = 8
        with f.compiler.set_stance("force_eager"):
            pass
        with pytest.raises(TypeError):
            f._dynamo.mark_static_address(3)
        for kind in (f.SymInt, f.SymFloat, f.SymBool):
            assert not isinstance(3, kind)
    with pytest.raises(RuntimeError, match="stance"):
        lucid.compiler.set_stance("nothing")
    with pytest.raises(TypeError, match="no symbols"):
        lucid.SymInt(3)
    assert lucid._C._jit_set_profiling_mode(True) is False
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = lucid._C.nothing_of_this_name


def test_a_block_without_autocast() -> None:
    keys = lucid._C.DispatchKeySet(lucid._C.DispatchKey.AutocastCPU)
    x = lucid.ones(2, 2)
    with lucid.autocast("cpu"):
        guard = lucid._C._ExcludeDispatchKeyGuard(keys)
        assert (x @ x).dtype is lucid.float32
        del guard
        assert (x @ x).dtype is lucid.bfloat16


def test_functions_of_arrays() -> None:
    for f in BOTH:
        made = f.compiler.wrap_numpy(lambda a, b: {"x": np.exp(a) + b})
        np.testing.assert_allclose(made(f.ones(2), 1.0)["x"].numpy(), np.exp(1) + 1, rtol=TABLE["rounding"].rtol)


def test_configuration() -> None:
    shown = lucid.__config__.show()
    assert lucid.__version__ in shown
    assert "MLX" in shown
    assert str(lucid.get_num_threads()) in lucid.__config__.parallel_info()


HUBCONF = """
dependencies = ["math"]
from weights import number
def net(scale=1, pretrained=False):
    "A net of one number."
    return number * scale
def _hidden(): ...
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "weights.py").write_text("number = 21\n")
    return folder


def test_local_repositories(tmp_path: Path) -> None:
    folder = str(repository(tmp_path / "repo"))
    sys.modules.pop("weights", None)
    for f in BOTH:
        assert f.hub.load(folder, "net", 2, source="local") == 42
        with pytest.raises(RuntimeError, match="Cannot find callable"):
            f.hub.load(folder, "other", source="local")
        with pytest.raises(ValueError, match="Unknown source"):
            f.hub.load(folder, "net", source="ftp")
        with pytest.raises(FileNotFoundError):
            f.hub.load(str(tmp_path / "nothing"), "net", source="local")
    assert lucid.hub.list(folder, source="local") == ["net"]
    assert lucid.hub.help(folder, "net", source="local") == "A net of one number."
    assert folder not in sys.path
    (tmp_path / "repo" / "hubconf.py").write_text("dependencies = ['there_is_no_such_package']")
    with pytest.raises(RuntimeError, match="Missing dependencies: there_is_no_such_package"):
        lucid.hub.list(folder, source="local")


def test_repositories_of_github(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, url = served
    inner = repository(tmp_path / "src" / "owner-repo-abc")
    with zipfile.ZipFile(folder / "owner.zip", "w") as archive:
        for path in inner.iterdir():
            archive.write(path, f"owner-repo-abc/{path.name}")
    (folder / "broken.zip").write_bytes(b"no archive")
    monkeypatch.setattr(lucid.hub, "_ARCHIVE", url + "/{owner}.zip")
    monkeypatch.setattr(lucid.hub, "_dir", str(tmp_path / "cache"))
    sys.modules.pop("weights", None)
    assert lucid.hub.load("owner/repo:main", "net", trust_repo=True) == 21
    assert (tmp_path / "cache" / "owner_repo_main" / "hubconf.py").exists()
    assert lucid.hub.list("owner/repo:main", trust_repo=True) == ["net"]
    assert "Using cache" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="not trusted"):
        lucid.hub.list("owner/repo:main")
    for answer, ends in (("n", False), ("y", True)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        if ends:
            assert lucid.hub.load("owner/repo:main", "net", trust_repo="check") == 21
        else:
            with pytest.raises(RuntimeError, match="not trusted"):
                lucid.hub.load("owner/repo:main", "net", trust_repo="check")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lucid.hub.list("owner/repo:main")
    with pytest.raises(RuntimeError, match="no ZIP file"):
        lucid.hub.load("broken/repo", "net", trust_repo=True)
    for name in ("owner", "owner/../x", "a/b:c d", "owner/repo:../.."):
        with pytest.raises(ValueError, match="owner/repo"):
            lucid.hub.load(name, "net", trust_repo=True)
    assert [p.name for p in (tmp_path / "cache").iterdir() if p.name.startswith("tmp")] == []


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_weights_from_the_network(tmp_path: Path, served: tuple[Path, str], device: str) -> None:
    import hashlib

    folder, url = served
    lucid.save({"w": lucid.ones(3)}, folder / "w.pt")
    digest = hashlib.sha256((folder / "w.pt").read_bytes()).hexdigest()
    right, wrong = f"net-{digest[:8]}.pt", "net-00000000.pt"
    for name in (right, wrong):
        (folder / name).write_bytes((folder / "w.pt").read_bytes())
    cache = str(tmp_path / "cache")
    load = lucid.hub.load_state_dict_from_url
    got = load(f"{url}/{right}", cache, map_location=device, progress=False, check_hash=True)
    assert got["w"].tolist() == [1, 1, 1]
    assert got["w"].device.type == lucid.device(device).type
    (folder / right).unlink()
    assert lucid.utils.model_zoo.load_url(f"{url}/{right}", cache)["w"].tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        load(f"{url}/{wrong}", cache, progress=False, check_hash=True)
    with pytest.raises(RuntimeError, match="no hash"):
        load(f"{url}/w.pt", cache, progress=False, check_hash=True)
    with pytest.raises(OSError, match="404"):
        load(f"{url}/nothing.pt", cache, progress=False)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [right]
    with zipfile.ZipFile(folder / "w.zip", "w") as archive:
        archive.write(folder / "w.pt", "inner/zipped.pt")
    assert load(f"{url}/w.zip", cache, progress=False)["w"].tolist() == [1, 1, 1]
    assert load(f"{url}/w.pt", cache, progress=False, file_name="other.pt")["w"].tolist() == [1, 1, 1]
    assert (tmp_path / "cache" / "other.pt").exists()


def test_the_folder_of_the_hub(tmp_path: Path) -> None:
    code = "import lucid; print(lucid.hub.get_dir()); lucid.hub.set_dir('~/x'); print(lucid.hub.get_dir())"
    env = {"LUCID_HOME": str(tmp_path), "HOME": "/home/someone", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.splitlines() == [str(tmp_path / "hub"), "/home/someone/x"], done.stderr


def test_importing_lucid_brings_none_of_these() -> None:
    code = "import sys, lucid; print(*(m for m in ('lucid.jit', 'lucid.hub', 'urllib.request') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "lucid" not in done.stdout
    assert "urllib" not in done.stdout


def test_names_that_say_what_they_are_not_where_they_are_used() -> None:
    table = {lucid.uint4: "U4", lucid.float8_e8m0fnu: "F8_E8M0", lucid.uint8: "U8"}
    assert table[lucid.uint4] == "U4" and lucid.uint4 != lucid.uint8
    assert pickle.loads(pickle.dumps(lucid.uint4)) is lucid.uint4
    for name in ("int1", "uint7", "float8_e8m0fnu", "float8_e5m2fnuz", "float4_e2m1fn_x2"):
        ours, theirs = getattr(lucid, name), getattr(torch, name)
        assert repr(ours) == f"lucid.{name}" and ours.itemsize == theirs.itemsize
        assert (ours.is_floating_point, ours.is_complex) == (theirs.is_floating_point, theirs.is_complex)
        for call in (lambda d: lucid.zeros(2, dtype=d), lucid.ones(2).to, lucid.empty(2).type):
            with pytest.raises(TypeError, match=rf"lucid\.{name}, which no tensor has here: .*lucid\.\w+"):
                call(ours)
    for name in ("float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        ours, theirs = lucid.finfo(getattr(lucid, name)), torch.finfo(getattr(torch, name))
        for limit in ("min", "max", "eps", "tiny", "smallest_normal", "resolution", "bits", "dtype"):
            assert getattr(ours, limit) == getattr(theirs, limit), limit
    assert lucid.chalf is lucid.complex32
    for name in ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables"):
        given = (lucid.nn.ReLU(), (lucid.ones(1),)) if name == "make_graphed_callables" else ()
        with pytest.raises(NotImplementedError, match=f"{name}: .*lucid.compile"):
            getattr(lucid.cuda, name)(*given)
    assert lucid.cuda.is_current_stream_capturing() is False
    for kind in ("TrainingMode", "OperatorExportTypes"):
        names = {m.name: m.value for m in getattr(lucid.onnx, kind)}
        assert names == {n: int(getattr(getattr(torch.onnx, kind), n)) for n in names}
    helper = importlib.import_module("lucid.onnx.symbolic_helper")
    assert helper.parse_args("v")(len) is len
    with pytest.raises(NotImplementedError, match="older exporter"):
        helper._get_tensor_sizes(None)


def test_wrapped_modules_and_device_states() -> None:
    for framework in (lucid, torch):
        policies = importlib.import_module(f"{framework.__name__}.distributed.fsdp.wrap")
        nn = framework.nn
        with policies.enable_wrap(wrapper_cls=nn.modules.container.Sequential):
            assert type(policies.wrap(nn.ReLU())) is nn.Sequential
        assert type(policies.wrap(nn.ReLU())) is nn.ReLU
        states = importlib.import_module(f"{framework.__name__}.utils.checkpoint")
        assert states.get_device_states(framework.ones(2), [framework.ones(1)], 3) == ([], [])
    x = lucid.ones(2, device="gpu")
    devices, kept = lucid.utils.checkpoint.get_device_states([x])
    first = lucid.rand(3, device="gpu")
    lucid.utils.checkpoint.set_device_states(devices, kept)
    assert devices == [0] and lucid.equal(first, lucid.rand(3, device="gpu"))
    with pytest.raises(ValueError, match="computes on GPU 0"):
        lucid.utils.checkpoint.set_device_states([1], kept)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("qint8", "use float16 or bfloat16"),
        ("nn.functional.scaled_grouped_mm", "dtypes"),
        ("cuda.ExternalStream", "MLX has one memory pool"),
        ("utils.throughput_benchmark", "workings"),
    ],
)
def test_a_name_that_is_absent_says_why(name: str, reason: str) -> None:
    module, _, last = f"lucid.{name}".rpartition(".")
    held = lucid
    for part in module.split(".")[1:]:
        held = getattr(held, part)
    assert not hasattr(held, last)
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute '{last}': .*{reason}"):
        getattr(held, last)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing_of_this_name'$"):
        _ = held.nothing_of_this_name


def test_names_of_launchers_and_checkpoints(tmp_path: Any) -> None:
    import lucid.distributed.checkpoint as dcp
    from lucid.distributed._tensor.experimental import implicit_replication
    from lucid.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
    from lucid.distributed.checkpoint import format_utils
    from lucid.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
    from lucid.distributed.optim import DistributedOptimizer
    from lucid.distributed.pipelining import SplitPoint, pipeline
    from lucid.distributed.tensor.experimental._attention import set_rotate_method

    layer = lucid.nn.Linear(3, 2)
    wrapped, x = offload_wrapper(copy.deepcopy(layer)), lucid.randn(4, 3)
    for module in (layer, wrapped):
        module(x).tanh().sum().backward()
    assert list(wrapped.state_dict()) == ["weight", "bias"] and lucid.equal(wrapped.weight.grad, layer.weight.grad)
    dcp.save({"model": layer.state_dict(), "optim": {"step": 3}}, checkpoint_id=tmp_path / "c", no_dist=True)
    found: dict[str, Any] = {}
    reader = dcp.FileSystemReader(tmp_path / "c")
    planner = format_utils._EmptyStateDictLoadPlanner()
    format_utils._load_state_dict(found, storage_reader=reader, planner=planner, no_dist=True)
    assert lucid.equal(found["model"]["weight"], layer.weight) and found["optim"] == {"step": 3}
    assert load_sharded_optimizer_state_dict({}, "optim", reader) == {"optim": {"step": 3}}
    with pytest.raises(RuntimeError, match="has no 'other'"):
        load_sharded_optimizer_state_dict({}, "other", reader)
    for call in (implicit_replication, set_rotate_method, DistributedOptimizer):
        with pytest.raises(NotImplementedError, match=": "):
            call()
    with pytest.raises(NotImplementedError, match="PipelineStage"):
        pipeline(layer, (x,), split_spec={"0": SplitPoint.END})
    assert not lucid.distributed.distributed_c10d._pg_map
    assert not lucid.mtia.is_available() and lucid.mtia.device_count() == 0
    with pytest.raises(RuntimeError, match="no such device"):
        lucid.mtia.synchronize()


@pytest.mark.parametrize("framework", [torch, lucid])
def test_sizes_as_tensors(framework: Any) -> None:
    operators = importlib.import_module(f"{framework.__name__}.onnx.operators")
    x = framework.arange(6).reshape(2, 3)
    shape = operators.shape_as_tensor(x)
    assert shape.tolist() == [2, 3] and shape.dtype == framework.int64
    assert operators.reshape_from_tensor_shape(x, framework.tensor([3, -1])).tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(RuntimeError):
        operators.reshape_from_tensor_shape(x, framework.tensor([4, 4]))


def test_the_compiler_of_scripts_by_its_file() -> None:
    for framework in (lucid, torch):
        recursive = importlib.import_module(f"{framework.__name__}.jit._recursive")
        stub = recursive.ScriptMethodStub(None, None, len)
        assert stub.original_method is len and recursive.PropertyStub(1, 2).def_ == 2
        assert "_parameters" in recursive.ignored_attributes
        recursive.check_module_initialized(framework.nn.ReLU())

        class Bare(framework.nn.Module):
            def __init__(self) -> None:
                pass

        with pytest.raises(RuntimeError, match="did you forget to call"):
            recursive.check_module_initialized(Bare())
        with pytest.raises(AssertionError):
            recursive.check_module_initialized(3)
    layer = lucid.nn.ReLU()
    assert lucid.jit._recursive.create_script_module(layer, lambda m: []) is layer
    assert lucid.jit._recursive.get_class_properties(Bare) == []
    with pytest.raises(NotImplementedError, match=r"jit\._recursive\.wrap_cpp_module: there are no scripts here"):
        lucid.jit._recursive.wrap_cpp_module(layer)
