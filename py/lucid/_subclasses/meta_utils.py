"""`MetaConverter`: tensors of the meta device with the shapes, strides and dtypes of others."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.utils.weak import WeakIdKeyDictionary

__all__ = ["MetaConverter"]


class MetaConverter:
    """Makes a tensor of the meta device of each tensor that it is called with, and the same one each time.

    Args:
        copy_data (bool, default: False): must be False: the meta device has no elements.

    Raises:
        NotImplementedError: `copy_data=True`.

    Example:
        >>> from lucid._subclasses.meta_utils import MetaConverter
        >>> MetaConverter()(lucid.ones(2, 3))
        tensor(..., device='meta', size=(2, 3))
    """

    def __init__(self, *, copy_data: bool = False) -> None:
        if copy_data:
            raise errors.NotImplementedError("MetaConverter: the meta device has no elements to copy")
        self.tensor_memo: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __call__(self, t: Any, *_args: Any, **_kwargs: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        found = self.tensor_memo.get(t)
        if found is None:
            with _C.DisableTorchFunction():
                if t.layout is not lucid.strided:
                    raise errors.NotImplementedError(f"MetaConverter: {t.layout!r} tensors are not taken")
                elem = lucid.empty_strided(tuple(t.shape), tuple(t.stride()), dtype=t.dtype, device="meta")
                made = elem.requires_grad_(t.requires_grad)
                found = lucid.nn.Parameter(made, t.requires_grad) if isinstance(t, lucid.nn.Parameter) else made
            self.tensor_memo[t] = found
        return found
