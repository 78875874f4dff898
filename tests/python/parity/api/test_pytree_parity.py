"""`utils._pytree` against PyTorch's: trees, structures, paths, and containers that are made known."""

from __future__ import annotations

import collections
import dataclasses
from types import ModuleType
from typing import Any

import lucid
import lucid.utils._pytree
import pytest
import torch
import torch.utils._pytree

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Data:
    a: Any
    b: Any
    c: Any = None


@dataclasses.dataclass
class Whole:
    a: Any
    b: Any = 7


@dataclasses.dataclass
class Partly:
    a: Any
    b: Any = 7


class Box:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __repr__(self) -> str:
        return f"Box({self.x})"


class Labelled:
    def __init__(self, x: Any, label: str) -> None:
        self.x, self.label = x, label

    def __repr__(self) -> str:
        return f"Labelled({self.x}, {self.label})"


PACKAGES: tuple[tuple[ModuleType, ModuleType], ...] = ((torch, torch.utils._pytree), (lucid, lucid.utils._pytree))


def make_known(tree: ModuleType) -> None:
    # Once in a process, however often the module is imported under other names.
    if len(tree.tree_leaves(Data(1, 2))) > 1:
        return
    tree.register_dataclass(Data)
    tree.register_dataclass(Whole, drop_field_names=["b"])
    tree.register_dataclass(Partly, field_names=["a"], drop_field_names=["b"])
    tree.register_pytree_node(Box, lambda box: ([box.x], None), lambda children, _: Box(*children))
    tree.register_pytree_node(
        Labelled,
        lambda x: ([x.x], x.label),
        lambda children, label: Labelled(*children, label),
        flatten_with_keys_fn=lambda x: ([(tree.GetAttrKey("x"), x.x)], x.label),
    )


for _, tree in PACKAGES:
    make_known(tree)

TREES = (
    "1",
    "None",
    "[]",
    "()",
    "[1, {'a': (2, None)}, (3,)]",
    "{'b': 1, 'a': [2, 3]}",
    "OrderedDict(b=1, a=2)",
    "defaultdict(int, {'b': 1, 'a': 2})",
    "deque([1, (2, 3)], maxlen=3)",
    "Pair(1, [2])",
    "Data(1, Box([2, 3]))",
    "Data(1, None, 4)",
    "Whole(1, 2)",
    "Partly(1, 2)",
    "[Labelled({'k': 5}, 'l')]",
    "((((((1,),),),),), [[[[[2]]]]])",
)
OF_TREES = (
    "t.tree_flatten({0})",
    "t.tree_structure({0}).unflatten(t.tree_leaves({0}))",
    "t.tree_map(lambda x: (x, 1), {0})",
    "t.tree_map(lambda x, y: [x, y], {0}, {0})",
    "t.tree_map_only(int, lambda x: x + 1, {0})",
    "t.tree_all_only(int, lambda x: x > 1, {0}), t.tree_any_only(int, lambda x: x > 1, {0})",
    "t.tree_structure({0}) == t.tree_structure({0}), hash(t.tree_structure({0})) == hash(t.tree_structure({0}))",
    "[(s.num_leaves, s.num_nodes, s.num_children, s.is_leaf(), s.type, s.context) for s in [t.tree_structure({0})]]",
    "t.tree_leaves({0}, is_leaf=lambda x: isinstance(x, (tuple, Box)))",
    "t._broadcast_to_and_flatten(0, t.tree_structure({0}))",
    "t._broadcast_to_and_flatten({0}, t.tree_structure([1, 2, 3]))",
    "t.tree_is_leaf({0}), list(t.tree_iter({0}))",
    "t.tree_leaves_with_path({0})",
    "t.tree_map_with_path(lambda path, x: (t.keystr(path), x), {0})",
    "[t.key_get({0}, path) for path, _ in t.tree_flatten_with_path({0})[0]]",
)
OTHERS = (
    "t.tree_unflatten([1], t.tree_structure([1, 2]))",
    "t.tree_unflatten([1, 2, 3], t.tree_structure([1, 2]))",
    "t.tree_unflatten([1, 2], 3)",
    "t.tree_map(lambda a, b: (a, b), [1, 2], [3, [4]])",
    "t.tree_map(lambda a, b: (a, b), [1, [2]], [3, 4])",
    "t.tree_map(lambda a, b: a + b, [1, 2], [3])",
    "t.tree_map(lambda a, b: a + b, [1, 2], (3, 4))",
    "t.tree_map(lambda a, b: a + b, {'a': 1, 'b': 2}, {'b': 3, 'a': 4})",
    "t.tree_map(lambda a, b: a + b, {'a': 1, 'b': 2}, {'b': 3, 'c': 4})",
    "t.tree_map(lambda a, b: a + b, {'a': 1}, OrderedDict(a=1))",
    "t.tree_map(lambda a, b: a + b, Labelled(1, 'l'), Labelled(1, 'm'))",
    "t.tree_structure({'a': 1, 'b': 2}) == t.tree_structure({'b': 1, 'a': 2})",
    "t.tree_structure([1]) == 3",
    "t.tree_map_only((int, float), lambda x: x + 1, [1, 'a', 2.0])",
    "t.tree_map_only(int | float, lambda x: x + 1, [1, 'a', 2.0])",
    "t.tree_map_only(lambda x: x == 1, lambda x: x + 1, [1, 'a', 2.0])",
    "t.tree_map_only(3, lambda x: x + 1, [1, 'a', 2.0])",
    "t.tree_all(lambda x: x > 0, [1, 2]), t.tree_any(lambda x: x > 2, [1, (2,)])",
    "t.arg_tree_leaves(1, a=[2])",
    "t.treespec_tuple([t.treespec_leaf()]), t.treespec_dict({'a': t.LeafSpec()}), t.treespec_tuple()",
    "t.tree_structure([1, {'a': 2}]).flatten_up_to([1, {'a': [5]}])",
    "t.tree_structure([1, {'a': 2}]).flatten_up_to([1, 2])",
    "t.tree_structure([1, {'a': 2}]).children(), t.tree_structure([1, {'a': 2}]).child(1)",
    "t.register_pytree_node(list, list, list)",
    "t.register_pytree_node(Box, list, list)",
    "t.register_dataclass(Other, field_names=['a'])",
    "t.register_dataclass(int)",
    "t.tree_leaves_with_path(Box(1))",
    "t.tree_map_(lambda x: None, [1, 2])",
    "t.tree_leaves(torch.Size([1, 2])) if torch.__name__ == 'lucid' else [torch.Size([1, 2])]",
)


@dataclasses.dataclass
class Other:
    a: int
    b: int


def end(program: str, module: ModuleType, tree: ModuleType) -> str:
    names = {**globals(), "torch": module, "t": tree}
    names.update(OrderedDict=collections.OrderedDict, defaultdict=collections.defaultdict, deque=collections.deque)
    try:
        return repr(eval(program, names)).replace("lucid", "torch")
    except Exception as e:
        return next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
@pytest.mark.parametrize("program", [*(p.replace("{0}", tree) for p in OF_TREES for tree in TREES), *OTHERS])
def test_programs(program: str) -> None:
    theirs, ours = (end(program, *package) for package in PACKAGES)
    assert ours == theirs


TRANSFORMED = (
    "torch.vmap(lambda box: Box(box.x * 2))(Box(torch.arange(3.0))).x.tolist()",
    "torch.func.grad(lambda d: d.a * d.b)(Data(torch.tensor(2.0), torch.tensor(3.0)))",
    "torch.func.jacrev(lambda d: {'y': d.a * d.b})(Data(torch.ones(2), torch.ones(2)))['y'].a.tolist()",
    "torch.func.jvp(lambda b: b.x ** 2, (Box(torch.tensor(3.0)),), (Box(torch.tensor(1.0)),))[1].item()",
    "torch.vmap(lambda x, y: (x, y), in_dims=(Box(0), None))(Box(torch.ones(2)), 1)[0].x.shape",
    "torch.vmap(lambda x: x, in_dims=([0],))((torch.ones(2),))",
)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("program", TRANSFORMED)
def test_what_is_known_goes_through_transforms(program: str) -> None:
    theirs, ours = (end(program, *package) for package in PACKAGES)
    assert ours == theirs
