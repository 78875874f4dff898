"""Types of PyTorch's scripts, for annotations and comparisons: nothing is an instance of one, and there is none to get.

`lucid` looks names up here when they are first asked for.
"""

from __future__ import annotations

from typing import Any, NoReturn

from lucid import errors

_TYPES = (
    *("AnyType", "AwaitType", "BoolType", "ClassType", "ComplexType", "DeviceObjType", "DictType", "EnumType"),
    *("FloatType", "FutureType", "InferredType", "IntType", "InterfaceType", "ListType", "NoneType", "NumberType"),
    *("OptionalType", "PyObjectType", "RRefType", "StreamObjType", "StringType", "SymBoolType", "SymIntType"),
    *("TensorType", "TupleType", "UnionType"),
)


def _type(name: str) -> type:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise errors.NotImplementedError(
            f"{name}: a type of PyTorch's scripts, which there are none of; run the Python function itself"
        )

    doc = "A type of PyTorch's scripts, for annotations and comparisons: there is none."
    body = {"__init__": refuse, "get": staticmethod(refuse), "__module__": "lucid", "__doc__": doc}
    return type(name, (), body)


globals().update({name: _type(name) for name in _TYPES})
