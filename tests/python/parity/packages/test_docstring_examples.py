"""The examples in docstrings run and give what they show."""

from __future__ import annotations

import doctest
import importlib

import lucid
import pytest

MODULES = [
    "__config__",
    "_compile",
    "_idioms",
    "_make_tensor",
    "compiler",
    "cuda.nvtx",
    "einops",
    "einops.layers",
    "fx._trace",
    "fx.graph",
    "fx.graph_module",
    "fx.interpreter",
    "fx.subgraph_rewriter",
    "hub",
    "jit",
    "jit._future",
    "nn.attention",
    "nn.attention.flex_attention",
    "signal.windows",
    "utils._summary",
    "utils.benchmark._compare",
    "utils.benchmark._measure",
    "utils.benchmark._timer",
    "utils.collect_env",
    "utils.flop_counter",
    "utils.tensorboard._event_file",
    "utils.tensorboard.writer",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"lucid.{name}")
    found = doctest.testmod(module, extraglobs={"lucid": lucid}, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
