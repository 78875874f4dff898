"""Trees of arguments by the file that PyTorch has them in; `lucid.utils._pytree` is where they are."""

from __future__ import annotations

from lucid.utils._pytree import PyTree as PyTree
from lucid.utils._pytree import TreeSpec as TreeSpec
from lucid.utils._pytree import tree_flatten as tree_flatten
from lucid.utils._pytree import tree_unflatten as tree_unflatten
