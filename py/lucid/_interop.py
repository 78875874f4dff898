"""Lucid's tensors in other packages: each is told of them when both are imported, whichever comes first.

`watch` runs at the import of Lucid. A package that is there already is told at once; for the others a finder waits at
the head of `sys.meta_path`, which costs a look into a dict for each import, and tells the package once it is loaded.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import importlib.machinery


def _einops(module: types.ModuleType) -> None:
    """Defines a backend of `einops`, which finds it among the subclasses of its base by `framework_name`."""
    base: Any = module.AbstractBackend
    if any(sub.framework_name == "lucid" for sub in base.__subclasses__() if hasattr(sub, "framework_name")):
        return
    import lucid

    class LucidBackend(base):  # type: ignore[misc]
        framework_name = "lucid"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, lucid.Tensor)

        def from_numpy(self, x: Any) -> lucid.Tensor:
            made = lucid.from_numpy(x)
            return made.requires_grad_() if self.is_float_type(made) else made

        def to_numpy(self, x: lucid.Tensor) -> Any:
            return x.detach().cpu().numpy()

        def arange(self, start: int, stop: int) -> lucid.Tensor:
            return lucid.arange(start, stop)

        def transpose(self, x: lucid.Tensor, axes: Sequence[int]) -> lucid.Tensor:
            return x.permute(*axes)

        def reduce(self, x: lucid.Tensor, operation: str, axes: Sequence[int]) -> lucid.Tensor:
            from lucid.einops import _REDUCTIONS, _reduced

            if operation not in _REDUCTIONS:
                raise NotImplementedError("Unknown reduction ", operation)
            return _reduced(x, operation, tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[lucid.Tensor]) -> lucid.Tensor:
            return lucid.stack(tensors)

        def add_axis(self, x: lucid.Tensor, new_position: int) -> lucid.Tensor:
            return x.unsqueeze(new_position)

        def add_axes(self, x: lucid.Tensor, n_axes: int, pos2len: dict[int, int]) -> lucid.Tensor:
            sizes = [-1] * n_axes
            for position, length in pos2len.items():
                x, sizes[position] = x.unsqueeze(position), length
            return x.expand(sizes)

        def tile(self, x: lucid.Tensor, repeats: Sequence[int]) -> lucid.Tensor:
            return x.repeat(*repeats)

        def concat(self, tensors: list[lucid.Tensor], axis: int) -> lucid.Tensor:
            return lucid.cat(tensors, axis)

        def is_float_type(self, x: lucid.Tensor) -> bool:
            return x.dtype.is_floating_point

        def einsum(self, pattern: str, *x: lucid.Tensor) -> lucid.Tensor:
            return lucid.einsum(pattern, *x)

        def layers(self) -> types.ModuleType:
            from lucid.einops import layers

            return layers

    # Nothing else refers to the class, and its base keeps subclasses weakly.
    module.LucidBackend = LucidBackend  # type: ignore[attr-defined]


def _tensorboardX(module: types.ModuleType) -> None:
    """Makes `make_np`, which turns values into arrays, take tensors, and lists of them."""
    former: Callable[[Any], Any] = module.make_np
    if hasattr(former, "of_lucid"):
        return
    import lucid

    def make_np(x: Any) -> Any:
        if isinstance(x, lucid.Tensor):
            x = x.detach().cpu()
            x = (x.float() if x.dtype is lucid.bfloat16 else x).numpy()
        elif isinstance(x, list) and any(isinstance(v, lucid.Tensor) for v in x):
            x = [make_np(v) for v in x]
        return former(x)

    make_np.of_lucid = True  # type: ignore[attr-defined]
    module.make_np = make_np  # type: ignore[attr-defined]
    for name in ("summary", "embedding", "visdom_writer"):
        there = sys.modules.get(f"tensorboardX.{name}")
        if there is not None and getattr(there, "make_np", None) is former:
            there.make_np = make_np  # type: ignore[attr-defined]


def copy_to_pytorch(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """PyTorch's `target.copy_(source)` of a tensor of Lucid's, for `torch_module.load_state_dict(lucid_state)`."""
    torch: Any = sys.modules["torch"]
    host = source.detach().cpu().resolve_conj().resolve_neg()
    return target.copy_(torch.from_dlpack(host), non_blocking=non_blocking)


#: The modules that are told of Lucid's tensors, and by which function.
_TOLD: dict[str, Callable[[types.ModuleType], None]] = {
    "einops._backends": _einops,
    "tensorboardX.x2num": _tensorboardX,
}


class _Loader:
    """Loads a module with its own loader and then tells it. `importlib.abc` takes too long to import for a base."""

    def __init__(self, inner: Any, tell: Callable[[types.ModuleType], None]) -> None:
        self.inner, self.tell = inner, tell

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self.inner.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        self.inner.exec_module(module)
        self.tell(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Finder:
    """Finds the modules of `_TOLD` as the other finders do, with `_Loader` around their loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        tell = _TOLD.get(fullname)
        if tell is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if isinstance(finder, _Finder) or find is None else find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, tell)
                return spec  # type: ignore[no-any-return]
        return None


def watch() -> None:
    """Tells the packages that are imported, and those that will be."""
    for name, tell in _TOLD.items():
        if name in sys.modules:
            tell(sys.modules[name])
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
