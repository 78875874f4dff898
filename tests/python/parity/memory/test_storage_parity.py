"""What is made, read and written through storages, `set_`, `resize_` and arrays of NumPy, against PyTorch."""

from __future__ import annotations

import copy
import pickle
import warnings
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


def shown(s: Any, write: Callable[[Any], Any]) -> list[Any]:
    """What a write gives, and the storage after it."""
    got = write(s)
    return [None if got is s else got, s.tolist(), s.nbytes()]


def bytes_of_tensor(m: Any) -> list[Any]:
    u = m.UntypedStorage([0, 0, 128, 63])
    t = m.Tensor(u)
    t.add_(1)
    return [u.tolist(), t.tolist()]


def elements_of_tensor(m: Any) -> list[Any]:
    f = m.FloatStorage([1, 2])
    t = m.Tensor(f)
    m.FloatTensor(f).add_(1)
    return [f.tolist(), t.tolist()]


def grown(m: Any) -> list[Any]:
    s = m.UntypedStorage(16)
    t = m.empty(0).set_(s, 1, (20,))
    return [tuple(t.shape), s.nbytes(), t.untyped_storage().nbytes()]


def part(m: Any) -> list[Any]:
    s = m.UntypedStorage([1, 2, 3])
    p = s[1:]
    p[0] = 9
    return [s.tolist(), p.tolist(), len(p)]


def wrapped(m: Any) -> list[Any]:
    u = m.UntypedStorage([0] * 9)
    f = m.FloatStorage(wrap_storage=u)
    f[0] = 1.0
    return [u.tolist(), f.size(), f.untyped() is u]


CONVERSIONS = ("float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool", "complex_float")
#: Storages that are made by themselves.
MADE: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda m: [
        s.tolist() if k else s.nbytes()
        for k, s in enumerate((m.UntypedStorage(4), m.UntypedStorage([1, 2, 300]), m.UntypedStorage(b"abc")))
    ],
    "sizes": lambda m: [m.UntypedStorage().nbytes(), m.UntypedStorage(size=4).size(), m.FloatStorage(3).nbytes()],
    "at places": lambda m: [m.UntypedStorage([1, 2, 3])[-1], list(m.UntypedStorage([1, 2])), m.FloatStorage([1, 2])[1]],
    "filled": lambda m: [m.UntypedStorage(3).fill_(300).tolist(), m.FloatStorage(2).fill_(1.5).tolist()],
    "longer": lambda m: [s := m.UntypedStorage([1, 2, 3]), s.resize_(5).nbytes(), s[:3].tolist()][1:],
    "shorter": lambda m: m.UntypedStorage([1, 2, 3]).resize_(2).tolist(),
    "elements, longer": lambda m: [(s := m.FloatStorage([1, 2])).resize_(5), s.size(), s.nbytes(), s.tolist()[:2]],
    "written": lambda m: shown(m.FloatStorage([1, 2, 3]), lambda s: s.__setitem__(slice(1, 3), 7)),
    "a byte written": lambda m: shown(m.UntypedStorage([1, 2, 3]), lambda s: s.__setitem__(0, -1)),
    "turned around": lambda m: shown(m.UntypedStorage([1, 2, 3, 4]), lambda s: s.byteswap(m.int16)),
    "converted": lambda m: [
        (str(t.dtype).rsplit(".", 1)[-1], t.tolist())
        for s in (m.UntypedStorage([1, 0, 2]), m.FloatStorage([1, 0, 2]))
        for t in (getattr(s, name)() for name in CONVERSIONS)
    ],
    "copied": lambda m: [
        copy.copy(m.UntypedStorage([1, 2])).tolist(),
        copy.deepcopy(m.UntypedStorage([1, 2])).tolist(),
        copy.deepcopy(m.FloatStorage([1, 2])).tolist(),
        pickle.loads(pickle.dumps(m.FloatStorage([1, 2]))).tolist(),
    ],
    "printed": lambda m: [
        repr(s).replace("torch.storage", "lucid").replace("torch", "lucid")
        for s in (m.UntypedStorage([1, 2]), m.FloatStorage([1, 2]))
    ],
    "named": lambda m: [m.LongStorage(2).type().partition(".")[2], m.HalfStorage(2).pickle_storage_type()],
    "of dtypes": lambda m: [
        str(m.TypedStorage(2).dtype).rsplit(".", 1)[-1],
        m.TypedStorage([1, 2], dtype=m.int32).tolist(),
        m.TypedStorage(wrap_storage=m.UntypedStorage(9), dtype=m.int32).size(),
        m.ByteStorage([1, 2]).tolist(),
    ],
    "instances": lambda m: [
        isinstance(m.ones(2).storage(), m.FloatStorage),
        isinstance(m.ones(2).storage(), m.DoubleStorage),
        *(m.is_storage(s) for s in (m.UntypedStorage(1), m.FloatStorage(1), m.ones(1))),
    ],
    "of buffers": lambda m: [
        m.FloatStorage.from_buffer(b"\0\0\x80\x3f", "little").tolist(),
        m.FloatStorage.from_buffer(b"\x3f\x80\0\0", "big").tolist(),
        m.UntypedStorage.from_buffer(b"ab", dtype=m.uint8).tolist(),
        m.TypedStorage.from_buffer(b"abcd", dtype=m.uint8).tolist(),
    ],
    "set": lambda m: [
        tuple(m.empty(0).set_(m.UntypedStorage(16)).shape),
        tuple(m.empty(0).set_(m.UntypedStorage(7)).shape),
        tuple(m.empty(0).set_(m.UntypedStorage(16), 1, (2,), (1,)).shape),
        m.empty(0).set_(m.UntypedStorage(16), 1, (1, 2)).stride(),
        m.empty(0).set_(m.FloatStorage([1, 2, 3])).tolist(),
        tuple(m.empty(0, dtype=m.int16).set_(m.ones(3).untyped_storage()).shape),
    ],
    "tensor of bytes": bytes_of_tensor,
    "tensor of elements": elements_of_tensor,
    "grown by a tensor": grown,
    "part": part,
    "wrapped": wrapped,
}
REFUSED: dict[str, Callable[[Any], Any]] = {
    "negative size": lambda m: m.UntypedStorage(-1),
    "index": lambda m: m.UntypedStorage([1])[3],
    "index of elements": lambda m: m.FloatStorage([1])[3],
    "steps": lambda m: m.UntypedStorage([1, 2, 3, 4])[::2],
    "slice of elements": lambda m: m.FloatStorage([1, 2])[0:1],
    "other size": lambda m: m.UntypedStorage(3).copy_(m.UntypedStorage(4)),
    "other dtype": lambda m: m.Tensor(m.DoubleStorage([1, 2])),
    "other dtype by name": lambda m: m.FloatTensor(m.DoubleStorage([1, 2])),
    "other dtype set": lambda m: m.empty(0).set_(m.DoubleStorage([1, 2])),
    "no dtype": lambda m: m.TypedStorage(wrap_storage=m.UntypedStorage(8)),
    "text": lambda m: m.UntypedStorage("a"),
    "a fraction": lambda m: m.UntypedStorage(2.5),
    "fractions": lambda m: m.UntypedStorage([1.5]),
    "two sizes": lambda m: m.UntypedStorage(1, 2),
}


@pytest.mark.parametrize("name", MADE)
def test_storages_of_their_own(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert MADE[name](lucid) == MADE[name](torch)


@pytest.mark.parametrize("name", REFUSED)
def test_what_storages_refuse(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as theirs:
            REFUSED[name](torch)
        with pytest.raises(theirs.type):
            REFUSED[name](lucid)


def shrunk_and_back(m: Any) -> list[Any]:
    """What a module does to its parameters between uses of them, to have their memory for others."""
    x = counted(m, 2, 3).requires_grad_()
    y, part, s, kept = (x * x).sum(), x.detach()[1], x.untyped_storage(), x.detach().clone()
    version = x._version
    s.resize_(0)
    seen = [s.nbytes(), x.untyped_storage().nbytes(), tuple(x.shape), x.stride(), x.data_ptr(), s.data_ptr()]
    s.resize_(24)
    seen += [s.nbytes(), x._version - version]
    x.data.copy_(kept)
    y.backward()
    return [*seen, x.tolist(), part.tolist(), x.grad.tolist(), part.data_ptr() - x.data_ptr()]


def cut(m: Any) -> list[Any]:
    x = counted(m, 6)
    s, view = x.untyped_storage(), x[:2]
    s.resize_(8)
    return [len(s), view.tolist(), x.set_(s, 0, (2,), (1,)).tolist(), s.resizable()]


RESIZED: dict[str, Callable[[Any], Any]] = {"shrunk and back": shrunk_and_back, "cut": cut}


def resized(m: Any) -> list[Any]:
    x = counted(m, 2, 3)
    s, view, version = x.untyped_storage(), x.t()[1:], x._version
    s.resize_(40)
    same = [s.nbytes(), view.untyped_storage().nbytes(), s.data_ptr() == x.data_ptr(), x._version - version]
    view.fill_(9)
    return [*same, x.tolist(), tuple(x.resize_(10).shape), x[:6].tolist(), s == x.untyped_storage()]


def set_beyond(m: Any) -> list[Any]:
    x, y = counted(m, 6), m.empty(0)
    y.set_(x.untyped_storage(), 4, (2, 4))
    x.fill_(3)
    return [y.stride(), y[0, :2].tolist(), x.untyped_storage().nbytes(), y.data_ptr() - x.data_ptr()]


def larger(m: Any) -> list[Any]:
    x = counted(m, 6)
    view, version = x.view(2, 3), x._version
    x.resize_(20)
    view.fill_(7)
    return [x[:6].tolist(), view.data_ptr() == x.data_ptr(), view.untyped_storage().nbytes(), x._version - version]


#: What a storage on the GPU device cannot have: more memory than it was made with, while tensors show it.
GROWN: dict[str, Callable[[Any], Any]] = {
    "grown": resized,
    "set beyond the end": set_beyond,
    "a larger tensor": larger,
    "elements": lambda m: [(x := counted(m, 6)).storage().resize_(3), x.untyped_storage().nbytes()],
    "from nothing": lambda m: [
        (x := m.empty(0)).untyped_storage().resize_(8).nbytes(),
        x.set_(x.untyped_storage(), 0, (2,)).fill_(1.0).tolist(),
    ],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", {**RESIZED, **GROWN})
def test_storages_that_tensors_show_change_their_size(name: str, device: str) -> None:
    make = RESIZED.get(name) or GROWN[name]
    lucid.set_default_device(device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = make(torch)
            if name in GROWN and device == "gpu" and name not in ("elements", "a larger tensor"):
                with pytest.raises(RuntimeError, match="not resizable"):
                    make(lucid)
                return
            ours = make(lucid)
    finally:
        lucid.set_default_device("cpu")
    if name == "a larger tensor" and device == "gpu":
        # It gets a storage of its own.
        assert ours[0] == list(range(6)) and not ours[1]
        return
    assert ours == theirs


def test_what_lies_beyond_the_end_of_a_storage_is_zero() -> None:
    # In PyTorch such a read is one of memory that is not the tensor's.
    for device in DEVICES:
        x = counted(lucid, 6).to(device)
        x.untyped_storage().resize_(8)
        assert x.tolist() == [0, 1, 0, 0, 0, 0] and (x + 1).sum().item() == 7
        x.fill_(2)
        x.untyped_storage().resize_(24)
        assert x.tolist()[:2] == [2, 2]


HELD: dict[str, Callable[[Any], Any]] = {
    "shown by an array": lambda m: ((x := m.ones(3)), x.numpy(), x)[0],
    "of an array": lambda m: m.from_numpy(np.ones(3, np.float32)),
}


@pytest.mark.parametrize("name", HELD)
def test_storages_that_arrays_show_keep_their_size(name: str) -> None:
    for m in (torch, lucid):
        x = HELD[name](m)
        s = x.untyped_storage()
        assert not s.resizable()
        with pytest.raises(RuntimeError, match="not resizable"):
            s.resize_(40)
        assert x.tolist() == [1, 1, 1] and s.nbytes() == 12
        with pytest.raises(RuntimeError, match="not resizable"):
            x.resize_(10)
    # PyTorch's tensor has other sizes now, and reads memory that is not its own.
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_storages_of_bytes_grow(device: str) -> None:
    s = lucid.UntypedStorage([1, 2, 3], device=device)
    assert s.resizable() and s.resize_(4).tolist() == [1, 2, 3, 0]
    t = lucid.empty(0, dtype=lucid.uint8, device=device).set_(s)
    s[1] = 7
    assert t.tolist() == [1, 7, 3, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_copies_have_addresses_of_their_own(device: str) -> None:
    def run(m: Any, device: str) -> list[Any]:
        x = m.arange(12.0, device=device).reshape(3, 4).clone()
        copies = [x.clone(), copy.deepcopy(x), m.asarray(x, copy=True), x.t().clone().t(), x.detach().clone()]
        first = [t.data_ptr() for t in (x, *copies)]
        again = [t.data_ptr() for t in (x, *copies)]
        views = [
            x.view(-1).data_ptr() == x.data_ptr(),
            x[1].data_ptr() - x.data_ptr(),
            x.detach().data_ptr() == first[0],
        ]
        copies[0].add_(1)
        return [len(set(first)), first == again, views, [t.tolist() for t in (x, *copies)], x.data_ptr() == first[0]]

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_many_copies_have_addresses_of_their_own(device: str) -> None:
    x = lucid.arange(12.0, device=device)
    for count in (1500, 2500):
        copies = [x.clone() for _ in range(count)]
        assert len({t.data_ptr() for t in (x, *copies)}) == count + 1


def test_a_storage_of_another_type() -> None:
    s = lucid.FloatStorage([1.5, 2.0])
    assert s.type() == "lucid.FloatStorage" and s.type("lucid.FloatStorage") is s
    for wanted in ("lucid.LongStorage", lucid.LongStorage):
        made = s.type(wanted)
        assert isinstance(made, lucid.LongStorage) and made.tolist() == [1, 2]
    with pytest.raises(ValueError, match="names no storage"):
        s.type("lucid.Linear")
