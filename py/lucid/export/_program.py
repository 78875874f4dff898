"""Exported programs: graph, weights and signature, as a module that can be called."""

from __future__ import annotations

import json
from typing import Any

from lucid import _C, errors
from lucid._C import Tensor
from lucid._warnings import warn_once
from lucid.compiler import _trees
from lucid.nn import Module, Parameter

__all__ = ["Dim", "ExportedModule", "ExportedProgram", "dims"]


class _Hint:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size that may vary from call to call of an exported program.

    Args:
        name (str): an identifier; dimensions of one name have one size.
        min (int, optional): the smallest size. Default: 2, since a size of 1 broadcasts.
        max (int, optional): the largest size. Default: four times the size at hand, at least 64.

    Raises:
        ValueError: no identifier, or no sizes between `min` and `max`.

    Example:
        >>> lucid.export.Dim("batch", min=2, max=32)
        Dim('batch', min=2, max=32)
    """

    AUTO = _Hint("AUTO")
    DYNAMIC = _Hint("DYNAMIC")
    STATIC = _Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise errors.ValueError(f"Dim(): the name must be an identifier, got {name!r}")
        low = 2 if min is None or min < 1 else int(min)
        if max is not None and int(max) <= low:
            raise errors.ValueError(f"Dim(): there must be sizes between min={low} and max={max}")
        self.__name__ = name
        self.min = low
        self.max = None if max is None else int(max)

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Makes several `Dim`s of one range.

    Args:
        names (str): an identifier for each.
        min (int, optional): the smallest size of each. Default: 2.
        max (int, optional): the largest size of each. Default: four times the size at hand, at least 64.

    Returns:
        tuple of Dim: one for each name.

    Raises:
        ValueError: a name is no identifier, or there are no sizes between `min` and `max`.

    Example:
        >>> [d.__name__ for d in lucid.export.dims("batch", "time")]
        ['batch', 'time']
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


def tree_to_json(tree: Any) -> Any:
    """What `_trees.flatten` says of containers, as JSON's types."""
    if tree is None:
        return None
    kind = tree[0]
    if len(tree) == 3:
        if not all(isinstance(key, str) for key in tree[1]):
            raise errors.TypeError("export(): dicts of arguments and results have strings for keys")
        return ["dict", list(tree[1]), [tree_to_json(t) for t in tree[2]]]
    name = "list" if kind is list else "tuple"
    return [name, [tree_to_json(t) for t in tree[1]]]


def tree_of_json(data: Any) -> Any:
    """The tree of JSON's types."""
    if data is None:
        return None
    if data[0] == "dict":
        return (dict, tuple(data[1]), tuple(tree_of_json(t) for t in data[2]))
    return ({"list": list, "tuple": tuple}[data[0]], tuple(tree_of_json(t) for t in data[1]))


_KINDS = ("tensor", "value", "constant")


def leaves_of(tree: Any) -> int:
    """How many leaves a tree has."""
    if tree is None:
        return 1
    if len(tree) == 3 and len(set(tree[1])) != len(tree[2]):
        raise ValueError("a dict of other keys than values")
    return sum(leaves_of(t) for t in tree[-1])


def constant_to_json(value: Any) -> Any:
    """A constant among arguments or results as JSON's types."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return {"float": repr(value)}
    raise errors.TypeError(
        f"export(): arguments and results are tensors, numbers, strings and None in tuples, lists and dicts, got "
        f"{type(value).__name__}"
    )


def constant_of_json(data: Any) -> Any:
    """The constant of JSON's types."""
    return float(data["float"]) if isinstance(data, dict) else data


class ExportedProgram:
    """A graph with its weights, which runs without the Python code that it was recorded from.

    `export` and `load` make it.

    Args:
        made (native program): the engine's graph with its description.

    Attributes:
        input_names (list of str): the tensors that it takes, in order.
        range_constraints (dict of str to tuple): by name of a `Dim` its smallest and largest size.

    Raises:
        RuntimeError: the description does not fit the graph.

    Example:
        >>> program = lucid.export.export(lambda x: x.exp(), (lucid.zeros(2),))
        >>> program.input_names
        ['x']
        >>> program.module()(lucid.zeros(2))
        tensor([1., 1.])
    """

    def __init__(self, made: _C._Exported) -> None:
        self._made = made
        try:
            facts = json.loads(made.metadata("python") or "")
            self._in_tree = tree_of_json(facts["in_tree"])
            self._in_leaves = [(kind, constant_of_json(x)) for kind, x in facts["in_leaves"]]
            self._out_tree = tree_of_json(facts["out_tree"])
            self._out_leaves = [(kind, constant_of_json(x)) for kind, x in facts["out_leaves"]]
            self._parameters = frozenset(facts["parameters"])
            self._extra: dict[str, str] = dict(facts["extra"])
            self._facts = facts
            for tree, leaves in ((self._in_tree, self._in_leaves), (self._out_tree, self._out_leaves)):
                if leaves_of(tree) != len(leaves) or not all(kind in _KINDS for kind, _ in leaves):
                    raise ValueError("containers of other contents than there are")
            results = [x for kind, x in self._out_leaves if kind == "value"]
            if any(type(i) is not int or not 0 <= i < len(made.outputs()) for i in results):
                raise ValueError("a result that there is not")
            if sum(kind == "tensor" for kind, _ in self._in_leaves) != len(made.inputs()):
                raise ValueError("other inputs than the graph has")
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise errors.RuntimeError(f"export.load(): the program's description is damaged: {error}") from error
        self.input_names = [name for name, _, _ in made.inputs()]
        self.range_constraints = {name: (low, high) for name, low, high in made.symbols()}

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """The weights by name."""
        return dict(self._made.weights())

    def named_parameters(self) -> Any:
        """The weights that were parameters, with their names."""
        return ((name, t) for name, t in self._made.weights() if name in self._parameters)

    def parameters(self) -> Any:
        """The weights that were parameters."""
        return (t for _, t in self.named_parameters())

    def named_buffers(self) -> Any:
        """The other weights, with their names."""
        return ((name, t) for name, t in self._made.weights() if name not in self._parameters)

    def buffers(self) -> Any:
        """The other weights."""
        return (t for _, t in self.named_buffers())

    def graph(self, **sizes: int) -> _C._Graph:
        """The graph, for the smallest sizes or for those named.

        Args:
            sizes: sizes by the name of their `Dim`.
        """
        return self._made.graph([sizes.get(name, low) for name, low, _ in self._made.symbols()])

    @property
    def graph_module(self) -> ExportedModule:
        """The program as a module."""
        return ExportedModule(self)

    def module(self, check_guards: bool = True) -> ExportedModule:
        """The program as a module: it takes the arguments that were recorded, and has the weights under their names."""
        return ExportedModule(self)

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """The program itself: ops are recorded as primitives already.

        Args:
            decomp_table (mapping, optional): PyTorch's functions for its own ops; warned of once, and without effect.
        """
        if decomp_table:
            warn_once("run_decompositions", "run_decompositions: a table has no effect; ops are recorded as primitives")
        return self

    def _write(self, path: str) -> None:
        facts = {**self._facts, "extra": self._extra}
        self._made.save_with(path, {"python": json.dumps(facts)})

    @classmethod
    def _read(cls, path: str, device: Any) -> ExportedProgram:
        return cls(_C._Exported.load(path, "cpu" if device is None else device))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves: list[Any] = []
        tree = _trees.flatten((args, kwargs), leaves)
        if tree_to_json(tree) != tree_to_json(self._in_tree):
            raise errors.TypeError(
                f"the program was exported for other arguments: it takes {', '.join(self.input_names)}, in the "
                "containers that were given to export()"
            )
        tensors: list[Tensor] = []
        for leaf, (kind, constant) in zip(leaves, self._in_leaves, strict=True):
            if kind == "tensor":
                if not isinstance(leaf, Tensor):
                    name = self.input_names[len(tensors)]
                    raise errors.TypeError(f"the program takes a tensor for {name}, got {type(leaf).__name__}")
                tensors.append(leaf)
            elif isinstance(leaf, Tensor) or _trees.constant(leaf) != _trees.constant(constant):
                raise errors.ValueError(f"the program was exported for the argument {constant!r}, got {leaf!r}")
        made = self._made.run(tensors)
        if len(made) != len(self._made.outputs()):
            raise errors.RuntimeError("the program's graph gives other results than its signature says")
        found = [made[x] if kind == "value" else x for kind, x in self._out_leaves]
        return _trees.unflatten(self._out_tree, iter(found))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise errors.RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        weights = ", ".join(name for name, _ in self._made.weights())
        return f"ExportedProgram:\n{self.graph()}\nweights: {weights}\nrange constraints: {self.range_constraints}"

    __repr__ = __str__


class ExportedModule(Module):
    """A module that runs an exported program. Its results require no gradients."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        self.__dict__["_program"] = program
        for name, t in program._made.weights():
            owner: Module = self
            *path, last = name.split(".")
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, Module())
                inner = owner._modules[part]
                assert inner is not None
                owner = inner
            if name in program._parameters and t.is_floating_point():
                owner.register_parameter(last, Parameter(t, requires_grad=False))
            else:
                owner.register_buffer(last, t)
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program."""
        return self.__dict__["_program"]._call(args, kwargs)

    def train(self, mode: bool = True) -> ExportedModule:
        """Raises: the mode is part of the program. `eval()` changes nothing."""
        if mode:
            raise errors.NotImplementedError("train(): the mode of an exported program was set when it was recorded")
        return self
