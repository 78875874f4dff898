"""Nested containers taken apart into their leaves and put together again, as in `torch.utils._pytree`.

Containers are tuples, lists, dicts (also ordered and default ones), deques, named tuples, and what
`register_pytree_node` and `register_dataclass` made known. All else is a leaf, `None` and subclasses of these (such as
`lucid.Size`) too. `lucid.func` takes the arguments and results of functions apart with this, so that what is registered
here goes through `vmap`, `grad` and the rest.

Difference from PyTorch: structures are not written as text (`treespec_dumps`), and there are no constant nodes.
"""

from __future__ import annotations

import dataclasses
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from lucid import errors

Context: TypeAlias = Any

__all__ = [
    "Context",
    "GetAttrKey",
    "KeyPath",
    "LeafSpec",
    "MappingKey",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "arg_tree_leaves",
    "key_get",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dict",
    "treespec_leaf",
    "treespec_tuple",
]

PyTree: TypeAlias = Any
IsLeaf: TypeAlias = Callable[[PyTree], bool] | None
#: Which leaves `tree_map_only` and its like are about: those of a type, or those of which a function says so.
Only: TypeAlias = type[Any] | tuple[type[Any], ...] | types.UnionType | Callable[[Any], bool]


# --- the way to a leaf ------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A place in a list, tuple or deque."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """What is there."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A key of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """What is there."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A field of a named tuple or dataclass."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """What is there."""
        return getattr(obj, self.name)


KeyPath: TypeAlias = tuple[Any, ...]


def keystr(kp: KeyPath) -> str:
    """A path as Python writes it: "[0]['a'].x"."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What a path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


# --- the kinds of containers ------------------------------------------------------------------------------------------


class NodeDef(NamedTuple):
    """How one kind is taken apart, into its children and what else is needed to put it together again."""

    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    #: The keys of the children; `None` where they have none.
    keys_fn: Callable[[Any], list[Any]] | None


def _places(tree: Any) -> list[Any]:
    return [SequenceKey(i) for i in range(len(tree))]


def _mapping_keys(tree: Any) -> list[Any]:
    return [MappingKey(key) for key in tree]


def _pairs(children: Iterable[Any], keys: list[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(keys, children, strict=True)


#: The kinds that are known. Named tuples all go by `collections.namedtuple`.
SUPPORTED_NODES: dict[Any, NodeDef] = {
    tuple: NodeDef(lambda t: (list(t), None), lambda c, _: tuple(c), _places),
    list: NodeDef(lambda t: (list(t), None), lambda c, _: list(c), _places),
    dict: NodeDef(lambda t: (list(t.values()), list(t)), lambda c, k: dict(_pairs(c, k)), _mapping_keys),
    namedtuple: NodeDef(
        lambda t: (list(t), type(t)), lambda c, kind: kind(*c), lambda t: [GetAttrKey(name) for name in t._fields]
    ),
    OrderedDict: NodeDef(lambda t: (list(t.values()), list(t)), lambda c, k: OrderedDict(_pairs(c, k)), _mapping_keys),
    defaultdict: NodeDef(
        lambda t: (list(t.values()), [t.default_factory, list(t)]),
        lambda c, context: defaultdict(context[0], _pairs(c, context[1])),
        _mapping_keys,
    ),
    deque: NodeDef(lambda t: (list(t), t.maxlen), lambda c, length: deque(c, maxlen=length), _places),
}
_DICTS = (dict, OrderedDict, defaultdict)


def register_pytree_node(
    cls: type[Any],
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Any], Any] | None = None,
    from_dumpable_context: Callable[[Any], Any] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
) -> None:
    """Makes a class known as a container.

    Args:
        cls: Its instances, not those of classes derived from it.
        flatten_fn: Gives an instance's children, and a context: what else is needed to make it again. Contexts are
            compared with `==`.
        unflatten_fn: Makes an instance from children and a context.
        flatten_with_keys_fn: As `flatten_fn`, with pairs of a key and a child; for `tree_flatten_with_path`.
        serialized_type_name, to_dumpable_context, from_dumpable_context: without effect: nothing is written here.

    Raises:
        ValueError: The class is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise errors.ValueError(f"{cls} is already registered as pytree node.")
    with_keys = flatten_with_keys_fn
    keys = None if with_keys is None else lambda tree: [key for key, _ in with_keys(tree)[0]]
    SUPPORTED_NODES[cls] = NodeDef(flatten_fn, unflatten_fn, keys)


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type[Any],
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Makes a dataclass known as a container of its fields; fields that are `None` are kept, and are no leaves.

    Args:
        cls: The dataclass, or a class that is made from the fields named.
        field_names: The fields; by default those that `cls` is made from.
        drop_field_names: Fields that `field_names` leaves out, for their defaults when an instance is put together.

    Raises:
        ValueError: No dataclass without `field_names`; or the names are not those of its fields.
    """
    if dataclasses.is_dataclass(cls):
        fields = {f.name for f in dataclasses.fields(cls) if f.init}
        names = [f.name for f in dataclasses.fields(cls) if f.init] if field_names is None else list(field_names)
        dropped = set(drop_field_names or ()) - set(names)
        if (missing := fields - set(names) - dropped) or (surplus := set(names) - fields):
            told = f"missing {sorted(missing)}" if missing else f"unexpected {sorted(surplus)}"
            raise errors.ValueError(
                f"register_dataclass(): the fields of {cls} and `field_names` differ: {told}. Name fields that are to "
                "be left out in `drop_field_names`."
            )
    elif field_names is None:
        raise errors.ValueError(f"register_dataclass(): field_names must be given for {cls}, which is no dataclass.")
    else:
        names = list(field_names)

    def apart(obj: Any) -> tuple[list[Any], Any]:
        there = [(name, getattr(obj, name)) for name in names]
        kept = [[n for n, value in there if value is not None], [n for n, value in there if value is None]]
        return [value for _, value in there if value is not None], kept

    def together(children: Iterable[Any], context: Any) -> Any:
        there, absent = context
        return cls(**dict(_pairs(children, there)), **dict.fromkeys(absent))

    def with_keys(obj: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = apart(obj)
        return [(GetAttrKey(name), child) for name, child in _pairs(children, context[0])], context

    register_pytree_node(cls, apart, together, flatten_with_keys_fn=with_keys)


def _kind(tree: PyTree) -> Any:
    """The kind of a container that goes by it in `SUPPORTED_NODES`; of a leaf, its type, which does not."""
    kind = type(tree)
    if kind not in SUPPORTED_NODES and issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return namedtuple
    return kind


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether this is no container, or one that `is_leaf` takes for a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _kind(tree) not in SUPPORTED_NODES


# --- structures -------------------------------------------------------------------------------------------------------


class TreeSpec:
    """How leaves are nested: the kind of a container, its context, and its children's structures.

    Attributes:
        type: The kind; `None` for a leaf, `collections.namedtuple` for all named tuples.
        context: What else is needed to make the container: a dict's keys, a named tuple's class.
        num_leaves, num_nodes, num_children: How many leaves there are, containers and leaves together, and children.
    """

    __slots__ = ("_children", "context", "num_leaves", "num_nodes", "type")

    def __init__(self, kind: Any, context: Any, children: list[TreeSpec]) -> None:
        self.type = kind
        self.context = context
        self._children = children
        self.num_leaves: int = 1 if kind is None else sum(c.num_leaves for c in children)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children)

    @property
    def num_children(self) -> int:
        return len(self._children)

    def children(self) -> list[TreeSpec]:
        """The children's structures."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """That of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """Whether it is that of a leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """A tree of this structure from its leaves.

        Raises:
            ValueError: There are more or fewer of them than it has.
        """
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise errors.ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._built(iter(leaves))

    def _built(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._built(leaves) for c in self._children], self.context)

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """The parts of a tree that are where this structure has its leaves, whatever they are.

        Raises:
            ValueError: The tree is nested in another way.
        """
        found: list[Any] = []
        self._up_to(tree, found)
        return found

    def _up_to(self, tree: PyTree, found: list[Any]) -> None:
        if self.type is None:
            found.append(tree)
            return
        kind = _kind(tree)
        if kind is not self.type and not (kind in _DICTS and self.type in _DICTS):
            raise errors.ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(children) != self.num_children:
            raise errors.ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if kind in _DICTS:
            keys = self.context[1] if self.type is defaultdict else self.context
            if missing := [key for key in keys if key not in tree]:
                surplus = [key for key in tree if key not in keys]
                raise errors.ValueError(f"Node keys mismatch; missing key(s): {missing}, extra key(s): {surplus}.")
            children = [tree[key] for key in keys]
        elif kind is not deque and context != self.context:
            raise errors.ValueError(f"Node context mismatch; expected {self.context!r}, but got {context!r}.")
        for spec, child in zip(self._children, children, strict=True):
            spec._up_to(child, found)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, theirs = (self.type, self.context, self._children), (other.type, other.context, other._children)
        return mine == theirs

    def __hash__(self) -> int:
        # Contexts may be of a kind that has no hash; structures that are equal have equal kinds.
        return hash((self.type, tuple(self._children)))

    def __repr__(self) -> str:
        return self._shown(0)

    def _shown(self, indent: int) -> str:
        if self.type is None:
            return "*"
        between = ",\n" + " " * (indent + 2)
        inner = between.join(c._shown(indent + 2) for c in self._children)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inner}])"


_LEAF = TreeSpec(None, None, [])


def LeafSpec() -> TreeSpec:
    """The structure of a leaf."""
    return _LEAF


def treespec_leaf() -> TreeSpec:
    """The structure of a leaf."""
    return _LEAF


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple, from those of its elements."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict, from those of its values."""
    specs = dict(mapping, **kwargs)
    return TreeSpec(dict, list(specs), list(specs.values()))


# --- taking apart and putting together --------------------------------------------------------------------------------


def _taken_apart(tree: PyTree, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = _kind(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_taken_apart(child, leaves, is_leaf) for child in children])


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, from left to right, and how they were nested.

    Args:
        tree: Nested containers, or a leaf.
        is_leaf: Says of a container whether it is to be taken for a leaf.
    """
    leaves: list[Any] = []
    spec = _taken_apart(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The inverse of `tree_flatten`.

    Raises:
        ValueError: There are more or fewer leaves than the structure has.
    """
    if not isinstance(treespec, TreeSpec):
        raise errors.TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be an instance of TreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """The leaves, one after the other."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
    else:
        for child in SUPPORTED_NODES[_kind(tree)].flatten_fn(tree)[0]:
            yield from tree_iter(child, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves, from left to right."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """How the leaves are nested."""
    return tree_flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of all arguments."""
    return [*tree_iter(args), *tree_iter(kwargs)]


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """The leaves of `tree`, each repeated for all leaves of the structure that it stands for; `None` where they do not
    fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _kind(tree)
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if kind is not treespec.type or context != treespec.context or len(children) != treespec.num_children:
        return None
    out: list[Any] = []
    for child, inner in zip(children, treespec.children(), strict=True):
        found = _broadcast_to_and_flatten(child, inner, is_leaf)
        if found is None:
            return None
        out += found
    return out


# --- functions of leaves ----------------------------------------------------------------------------------------------


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """The tree with `func` applied to each leaf, together with what `rests` have in its place.

    Raises:
        ValueError: One of `rests` is nested in another way.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *[spec.flatten_up_to(rest) for rest in rests]))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls `func` with each leaf, as `tree_map` does, and returns the tree as it is."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _of(only: Only) -> Callable[[Any], bool]:
    if isinstance(only, (type, tuple, types.UnionType)):
        return lambda x: isinstance(x, only)
    if callable(only):
        return only
    raise errors.TypeError(f"expected a type, a tuple of types or a function that says which leaves, got {only!r}")


def tree_map_only(
    type_or_types_or_pred: Only, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """The tree with `func` applied to the leaves of a type, or of which a function is true."""
    chosen = _of(type_or_types_or_pred)
    return tree_map(lambda x: func(x) if chosen(x) else x, tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Only, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None
) -> PyTree:
    """Calls `func` with the leaves that `tree_map_only` maps, and returns the tree as it is."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of all leaves."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of any leaf."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Only, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of all leaves of a type."""
    return all(map(pred, filter(_of(type_or_types), tree_iter(tree, is_leaf))))


def tree_any_only(type_or_types: Only, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether `pred` is true of any leaf of a type."""
    return any(map(pred, filter(_of(type_or_types), tree_iter(tree, is_leaf))))


# --- leaves and the ways to them --------------------------------------------------------------------------------------


def _with_paths(tree: PyTree, path: KeyPath, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = SUPPORTED_NODES[_kind(tree)]
    if node.keys_fn is None:
        raise errors.ValueError(
            f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a flatten_with_keys_fn argument "
            "to register_pytree_node."
        )
    for key, child in zip(node.keys_fn(tree), node.flatten_fn(tree)[0], strict=True):
        yield from _with_paths(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves, each after the keys that lead to it.

    Raises:
        ValueError: A container's children have no keys.
    """
    return list(_with_paths(tree, (), is_leaf))


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """`tree_leaves_with_path`, and how the leaves are nested."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map` of a function that takes the way to a leaf before the leaf."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [path for path, _ in found], [leaf for _, leaf in found]
    return spec.unflatten(map(func, paths, leaves, *[spec.flatten_up_to(rest) for rest in rests]))


def is_structseq_instance(obj: Any) -> bool:
    """Is it a result with names that is made in C, such as `time.localtime()` gives?"""
    return is_structseq_class(type(obj))


def is_structseq_class(cls: Any) -> bool:
    """Is it the class of results with names that are made in C?"""
    return (
        isinstance(cls, type)
        and cls.__bases__ == (tuple,)
        and all(isinstance(getattr(cls, n, None), int) for n in ("n_fields", "n_sequence_fields", "n_unnamed_fields"))
    )


def _flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    children, context = SUPPORTED_NODES[type(d)][0](d)
    return list(_pairs(children, (_places if isinstance(d, list) else _mapping_keys)(d))), context


# By the names that packages know.
_get_node_type = _kind
_dict_flatten, _dict_unflatten, _ = SUPPORTED_NODES[dict]
_list_flatten, _list_unflatten, _ = SUPPORTED_NODES[list]
_dict_flatten_with_keys = _list_flatten_with_keys = _flatten_with_keys
