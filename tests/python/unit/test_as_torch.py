"""`lucid.as_torch`: `import torch` means Lucid, in processes of their own, where PyTorch is installed or is not."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import lucid
import pytest
from lucid.torch_version import TorchVersion

PY = Path(lucid.__file__).resolve().parents[1]


def run(*args: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(PY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths, **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def says(code: str, *args: str, switch: bool = True) -> list[str]:
    """The lines that code prints under the switch."""
    done = run(*(["-m", "lucid.as_torch"] if switch else []), "-c", textwrap.dedent(code), *args)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_and_modules_are_lucids() -> None:
    told = says("""
        import sys
        import lucid, torch
        import torch.nn as nn, torch.nn.functional as F, torch.utils.data
        from torch.optim.lr_scheduler import StepLR
        from torch import Tensor, optim, version as v
        import torch.version
        assert nn is lucid.nn is torch.nn and F is lucid.nn.functional and Tensor is lucid.Tensor
        assert torch.utils.data is lucid.utils.data and optim is lucid.optim and torch.ones is lucid.ones
        assert sys.modules["torch.nn"] is lucid.nn and lucid.nn.__spec__.name == "lucid.nn" and torch.torch is torch
        assert StepLR is lucid.optim.lr_scheduler.StepLR and "ones" in dir(torch)
        assert type(torch) is not type(lucid) and isinstance(torch, type(sys))
        assert torch.__version__.startswith("2.") and torch.__version__ == torch.version.__version__
        assert v is torch.version and v.cuda == lucid.version.cuda
        assert lucid.__version__ == lucid.version.__version__ != torch.__version__
        torch.a_patch = 3
        assert lucid.a_patch == 3
        del torch.a_patch
        assert not hasattr(lucid, "a_patch")
        namespace = {}
        exec("from torch import *", namespace)
        assert namespace["ones"] is lucid.ones
        print(torch.ones(2) + 1)
        """)
    assert told == ["tensor([2., 2.])"]


def test_metadata_answers() -> None:
    told = says("""
        import importlib.metadata as m, importlib.util
        import torch
        spec = importlib.util.find_spec("torch")
        assert spec.name == "torch" and importlib.util.find_spec("torch.nn").name in ("torch.nn", "lucid.nn")
        assert m.version("torch") == torch.__version__ == m.distribution("torch").metadata["Version"]
        assert m.packages_distributions()["torch"][0] == "torch"
        assert m.distribution("torch").metadata["Name"] == "torch" and not m.requires("torch")
        assert m.version("pytest")
        try:
            m.version("torch_that_is_not_there")
        except m.PackageNotFoundError:
            print("ok")
        """)
    assert told == ["ok"]


def test_absent_modules_tell_why() -> None:
    told = says("""
        import importlib.util
        for name in ("torch.nothing", "torch.nn.nothing", "torch.nn.qat"):
            try:
                __import__(name)
            except ModuleNotFoundError as e:
                print(e.name, str(e).split(": ", 1)[1][:30])
        try:
            import torch
            torch.nothing
        except AttributeError as e:
            print("nothing" in str(e))
        """)
    assert told[0] == "torch.nothing Lucid has no module lucid.noth"
    assert told[1].startswith("torch.nn.nothing ")
    assert told[2].startswith("torch.nn.qat there are no quant")
    assert told[3] == "True"


def test_thin_names_import_and_say_why_when_they_are_used() -> None:
    told = says("""
        import torch
        import torch.onnx.symbolic_helper
        from torch._subclasses.functional_tensor import FunctionalTensor
        from torch._subclasses.fake_tensor import FakeTensor
        from torch._dynamo import OptimizedModule
        assert not isinstance(torch.ones(1), FakeTensor) and issubclass(FakeTensor, object)
        assert not isinstance(torch.nn.Linear(1, 1), torch._dynamo.eval_frame.OptimizedModule)
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        for make in (FunctionalTensor, compute_local_shape_and_global_offset, torch.onnx.operators):
            try:
                make(torch.ones(1))
            except NotImplementedError as e:
                print(str(e).split(":")[0])
        print(torch.finfo(torch.float8_e4m3fn).max, torch.finfo(torch.float16).max)
        assert torch.device("cpu") == torch.ones(1).device and torch.device("meta").type == "meta"
        assert isinstance(torch.ones(1).device, torch.device) and torch.device("cpu") != torch.device("meta")
        """)
    assert told == [
        "FunctionalTensor",
        "torch.distributed.tensor._utils.compute_local_shape_and_global_offset",
        "torch.onnx.operators",
        "448.0 65504.0",
    ]


def test_what_lucid_gets_takes_the_place_of_thin_modules() -> None:
    """A module that Lucid has is itself, with the thin names that it lacks."""
    told = says("""
        import importlib.machinery, sys, types
        import lucid
        from lucid.as_torch import _thin
        import lucid.distributed.tensor
        name = "distributed.tensor._utils"
        real = types.ModuleType(f"lucid.{name}")
        real.normalize, real.__path__ = "real", []
        real.__spec__ = importlib.machinery.ModuleSpec(real.__name__, None, is_package=True)
        sys.modules[f"lucid.{name}"] = real
        import torch.distributed.tensor._utils
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset, normalize
        assert torch.distributed.tensor._utils is real and normalize == "real"
        assert compute_local_shape_and_global_offset.__module__ == f"torch.{name}"
        import torch.onnx.symbolic_helper
        print(all(_thin.names(module) is not None for module in _thin.THIN))
        """)
    assert told == ["True"]


def test_files_of_the_name_of_a_function_leave_it_in_its_place() -> None:
    told = says("""
        from torch.nn.utils.weight_norm import WeightNorm
        from torch.nn.parallel.data_parallel import DataParallel
        import torch.nn.parallel.replicate
        import torch.nn.utils.spectral_norm
        from torch import nn
        functions = nn.utils.weight_norm, nn.utils.spectral_norm, nn.parallel.data_parallel, nn.parallel.replicate
        print({type(f).__name__ for f in functions}, DataParallel is nn.DataParallel, WeightNorm.__name__)
        """)
    assert told == ["{'function'} True WeightNorm"]


def test_meshgrid_tells_its_keyword() -> None:
    told = says("""
        import torch
        from torch import fx
        x = torch.arange(2)
        assert "indexing" in torch.meshgrid.__kwdefaults__
        print([[t.tolist() for t in torch.meshgrid(*given)] for given in ((x, x), ([x, x],))])
        print(torch.meshgrid(x, x, indexing="xy")[0].tolist())
        graph = fx.symbolic_trace(lambda a, b: torch.meshgrid(a, b, indexing="ij")[0])
        print([n.name for n in graph.graph.nodes], graph(x, x).tolist())
        """)
    both = "[[0, 0], [1, 1]], [[0, 1], [0, 1]]"
    assert told[0] == f"[[{both}], [{both}]]"
    assert told[1:] == ["[[0, 1], [0, 1]]", "['a', 'b', 'meshgrid', 'getitem', 'output'] [[0, 0], [1, 1]]"]


def test_pytorch_that_was_imported_before_is_an_error() -> None:
    code = """
        import sys, types
        sys.modules["torch"] = types.ModuleType("torch")
        try:
            import lucid.as_torch
        except ImportError as e:
            print("imported already" in str(e))
        """
    assert says(code, switch=False) == ["True"]


def test_import_is_the_switch_and_may_come_twice() -> None:
    told = says(
        """
        import lucid.as_torch, sys
        from lucid.as_torch._finder import install
        before = list(sys.meta_path)
        install()
        import torch, lucid
        print(sys.meta_path == before, torch.nn is lucid.nn)
        """,
        switch=False,
    )
    assert told == ["True True"]


SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor(i * i)


if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=3, num_workers=1, multiprocessing_context="spawn")
    print(sys.argv[1:], __file__, "lucid" in torch.__version__, [b.tolist() for b in loader])
"""


def test_scripts_with_arguments_and_workers(tmp_path: Path) -> None:
    """Workers are processes that import the script again, with the same switch."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("value = 4\n")
    (tmp_path / "module.py").write_text("import sys, torch, beside\nprint(__name__, sys.argv[1:], beside.value)\n")
    done = run("-m", "lucid.as_torch", "script.py", "a", "-b", cwd=tmp_path)
    assert done.stdout.strip() == "['a', '-b'] script.py True [[0, 1, 4], [9, 16, 25]]", done.stderr
    done = run("-m", "lucid.as_torch", "-m", "module", "x", cwd=tmp_path)
    assert done.stdout.strip() == "__main__ ['x'] 4", done.stderr
    (tmp_path / "fails.py").write_text("raise SystemExit(3)\n")
    assert run("-m", "lucid.as_torch", "fails.py", cwd=tmp_path).returncode == 3
    missing = run("-m", "lucid.as_torch", "nowhere.py", cwd=tmp_path)
    assert missing.returncode and "nowhere.py" in missing.stderr
    assert run("-m", "lucid.as_torch").returncode == 2


def test_libraries_for_pytorch_are_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "torchvision"
    folder.mkdir()
    for name in ("_C.so", "image.so", "other.so"):
        (folder / name).write_bytes(b"no library")
    lucid.ops.load_library(folder / "_C.so")
    assert str(folder / "_C.so") in lucid.ops.loaded_libraries
    assert int(lucid.ops.torchvision._cuda_version()) == -1
    with pytest.raises(OSError, match="needs PyTorch"):
        lucid.ops.load_library(folder / "other.so")
    for name, args in (("qnms", (lucid.ones(1, 4), lucid.ones(1), 0.5)),):
        with pytest.raises(NotImplementedError, match="quantized"):
            getattr(lucid.ops.torchvision, name)(*args)


@pytest.mark.parametrize(
    ("version", "order"),
    [
        ("2.15.0", 0),
        ("2.15", 0),
        ("2.9.1", 1),
        ("2.15.1", -1),
        ("2.15.0a1", 1),
        ("2.15.0.post1", -1),
        ((2, 15), 0),
        ((3,), -1),
    ],
)
def test_versions_are_ordered(version: object, order: int) -> None:
    ours = TorchVersion("2.15.0")
    assert ((ours > version) - (ours < version)) == order
    assert (ours == version) == (order == 0) != (ours != version)
    assert (ours >= version) == (order >= 0)
    assert (ours <= version) == (order <= 0)


def test_versions_are_text() -> None:
    assert isinstance(TorchVersion("2.15.0+lucid.0.1.0"), str)
    assert TorchVersion("2.15.0+lucid.0.1.0") > "2.15.0"
    assert {TorchVersion("2.15.0"): 1}["2.15.0"] == 1
    assert TorchVersion("2.15.0") != "no version"
    assert pickle.loads(pickle.dumps(TorchVersion("2.15.0"))) == "2.15.0"
