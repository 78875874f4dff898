"""Kernels for which MLX writes heads that differ in something."""

from __future__ import annotations

from tools.metal import mlx_text
from tools.metal.mlx_text import Argument

DTYPES = list(mlx_text.METAL_TYPES)

# Name, header, body, inputs, outputs, template parameters, atomic outputs.
Case = tuple[str, str, str, list[Argument], list[Argument], mlx_text.Template, bool]


def _x(shape: tuple[int, ...] = (16,), dtype: str = "float32", name: str = "x") -> Argument:
    return Argument(name, dtype, shape)


OUT = [Argument("out", "float32", (16,))]


def cases() -> dict[str, Case]:
    """Every rule at least once."""
    made: dict[str, Case] = {}
    for n in (0, 1, 7, 8, 9):
        made[f"size {n}"] = ("k", "", "out[0] = x[0];", [_x((n,))], OUT, (), False)
    made["several dimensions of few elements"] = ("k", "", "out[0] = x[0];", [_x((2, 3))], OUT, (), False)
    made["several dimensions"] = ("k", "", "out[0] = x[0];", [_x((2, 4))], OUT, (), False)
    made["a single number"] = ("k", "", "out[0] = x;", [_x(())], OUT, (), False)
    for dtype in DTYPES:
        body = "out[0] = x[0];"
        made[f"inputs of {dtype}"] = (
            "k",
            "",
            body,
            [_x(dtype=dtype), _x((2,), dtype, "y"), _x((), dtype, "z")],
            OUT,
            (),
            False,
        )
        made[f"outputs of {dtype}"] = ("k", "", body, [_x()], [Argument("out", dtype, (16,))], (), False)
    for kinds in (["shape"], ["strides"], ["ndim"], ["ndim", "shape"], ["strides", "ndim", "shape"]):
        body = "out[0] = " + " + ".join(f"x_{kind}" for kind in kinds) + ";"
        inputs = [_x((4, 4)), _x((2,), name="y"), _x((), name="z")]
        made[f"x's {kinds}"] = ("k", "", body, inputs, OUT, (), False)
        whole = body + "".join(f" f({name}_{kind});" for kind in kinds for name in "yz")
        made[f"all {kinds}"] = ("k", "", whole, inputs, OUT, (), False)
    made["a name within another"] = ("k", "", "out[0] = max_shape + x_shapes;", [_x(), _x(name="max")], OUT, (), False)
    for attribute in mlx_text.ATTRIBUTES:
        made[attribute] = (
            "k",
            "",
            f"out[0] = {attribute}{'.x' if 'grid' in attribute else ''};",
            [_x()],
            OUT,
            (),
            False,
        )
    made["all attributes"] = ("k", "", " + ".join(mlx_text.ATTRIBUTES), [_x()], OUT, (), False)
    made["an attribute in the header alone"] = (
        "k",
        "// thread_position_in_grid x_shape\n",
        "f();",
        [_x()],
        OUT,
        (),
        False,
    )
    made["a header without a line's end"] = ("k", "#define A 1", "f();", [_x()], OUT, (), False)
    made["several outputs"] = ("k", "", "f();", [_x()], [*OUT, Argument("b", "int32", (16,))], (), False)
    made["atomic outputs"] = ("k", "", "f();", [_x()], [*OUT, Argument("b", "int32", (16,))], (), True)
    made["no inputs"] = ("k", "", "f();", [], OUT, (), False)
    for values in (
        [("T", "float16")],
        [("N", 3)],
        [("N", -2)],
        [("B", True)],
        [("T", "bfloat16"), ("N", 7), ("B", False), ("U", "bool")],
    ):
        made[f"template {values}"] = ("k", "#define A\n", "out[0] = x[0];", [_x()], OUT, values, False)
    many = [Argument(f"p{k}", "float32", (16,)) for k in range(28)]
    made["28 inputs"] = ("long_name_1", "", "f();", many, OUT, (), False)
    return made


def words(case: Case) -> list[str]:
    """The case as mlx_probe.cpp takes it."""
    name, header, body, inputs, outputs, template, atomic = case
    made = [name, header, body, "atomic" if atomic else "plain"]
    for x in inputs:
        made += ["I", x.name, x.dtype, *map(str, x.shape)]
    for x in outputs:
        made += ["O", x.name, x.dtype]
    for key, value in template:
        made += ["T", key, str(value).lower() if isinstance(value, bool) else str(value)]
    return made
