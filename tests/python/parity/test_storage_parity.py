"""What is read and written through storages, `set_`, `resize_` and arrays of NumPy, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

DEVICES = ("cpu", "gpu")


def counted(m: Any, *shape: int) -> Any:
    n = int(np.prod(shape))
    return m.arange(n, dtype=m.float32).reshape(shape).clone()


def written(m: Any, write: Callable[[Any], Any]) -> list[Any]:
    """A tensor and a view of it after a write to their storage, which is given back."""
    x = counted(m, 2, 3)
    view = x.t()[1:]
    s = x.untyped_storage()
    same = write(s)
    return [x.tolist(), view.tolist(), same is None or same is s]


STORAGES: dict[str, Callable[[Any], Any]] = {
    "filled": lambda m: written(m, lambda s: s.fill_(0)),
    "a byte": lambda m: written(m, lambda s: s.__setitem__(3, 64)),
    "bytes": lambda m: written(m, lambda s: s.__setitem__(slice(4, 8), 64)),
    "copied": lambda m: written(m, lambda s: s.copy_((counted(m, 6) + 5).untyped_storage())),
    "cloned": lambda m: [
        (s := counted(m, 3).untyped_storage()).clone().tolist() == s.tolist(),
        s.clone().fill_(0).tolist() == s.tolist(),
    ],
    "on the cpu": lambda m: counted(m, 2).untyped_storage().cpu().tolist(),
    "facts": lambda m: [
        (s := counted(m, 3, 4)[1].untyped_storage()).nbytes(),
        s.size(),
        len(s),
        s.element_size(),
        s.is_sparse,
        s.is_pinned(),
        type(s).__name__,
    ],
    "elements": lambda m: [
        (s := counted(m, 6)[3:].storage()).tolist(),
        s.clone().fill_(2.0).tolist(),
        s.copy_(s.clone().fill_(1.0)).tolist(),
        s.cpu().tolist(),
        s.size(),
        s.is_sparse,
    ],
    "resized": lambda m: counted(m, 3).untyped_storage().resize_(12).nbytes(),
    "addresses": lambda m: [
        (x := counted(m, 3, 4)).data_ptr() == x.untyped_storage().data_ptr(),
        x[1:].data_ptr() - x.data_ptr(),
        x.t()[1].data_ptr() - x.data_ptr(),
        x.view(m.int32).data_ptr() == x.data_ptr(),
        x[2].storage().data_ptr() == x.data_ptr(),
        m.empty(0).data_ptr(),
    ],
    "set to a part": lambda m: (
        (y := m.empty(0).set_((x := counted(m, 12)), 2, (2, 3), (4, 1))).add_(10),
        x.tolist(),
        y.stride(),
        y.storage_offset(),
        y.is_set_to(x),
        y.is_set_to(x.as_strided((2, 3), (4, 1), 2)),
    )[1:],
    "sizes of storages": lambda m: (
        lambda x: [
            t.untyped_storage().nbytes()
            for t in (
                x[1],
                x[1].clone(),
                x.expand(2, 3, 4),
                x.expand(2, 3, 4).clone(),
                x[:0],
                x.view(m.int32),
                x.sort()[0],
                x[x > 3],
                x.topk(2)[0],
                x.nonzero(),
                x.unique(),
                m.stack([x, x])[0],
                m.nn.functional.pad(x, (1, 1)),
                m.multinomial(x + 1, 2),
            )
        ]
    )(counted(m, 3, 4)),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STORAGES)
def test_storages(name: str, device: str) -> None:
    lucid.set_default_device(device)
    try:
        ours = STORAGES[name](lucid)
    finally:
        lucid.set_default_device("cpu")
    theirs = STORAGES[name](torch)
    assert list(map(str, ours if isinstance(ours, (list, tuple)) else [ours])) == list(
        map(str, theirs if isinstance(theirs, (list, tuple)) else [theirs])
    )


def test_arrays_of_views_lie_as_they_do() -> None:
    def run(m: Any) -> list[Any]:
        x = counted(m, 3, 4)
        seen: list[Any] = []
        for view in (x, x.t(), x[1:, ::2], x[0].expand(2, 4), x.unfold(1, 2, 1), x[2:, :0]):
            for array in (view.numpy(), np.asarray(view)):
                seen += [array.strides, array.shape, array.tolist(), array.flags.owndata]
                seen.append(array.size == 0 or array.ctypes.data == view.data_ptr())
        x.numpy()[1, 1] = 50
        x[0].add_(100)
        return [*seen, x.tolist(), x.numpy().tolist()]

    assert run(lucid) == run(torch)
