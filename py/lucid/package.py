"""Archives of code and models, as `torch.package`: there are none, since they hold PyTorch's own modules. Save weights
with `lucid.save`, or a graph with its weights with `lucid.export.save`."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid import errors

__all__ = ["EmptyMatchError", "PackageExporter", "PackageImporter", "PackagingError", "is_from_package"]


class PackagingError(Exception):
    """What PyTorch raises for an archive that cannot be written. Nothing raises it here."""


class EmptyMatchError(Exception):
    """What PyTorch raises for a pattern that no module has. Nothing raises it here."""


def _refuse(name: str) -> NoReturn:
    raise errors.NotImplementedError(
        f"package.{name}: archives of code are not written or read; lucid.save keeps weights, lucid.export.save graphs"
    )


class PackageExporter:
    """Writes an archive in PyTorch: making one raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.package.PackageExporter("model.pt")
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: package.PackageExporter: archives of code are not written or read; ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("PackageExporter")


class PackageImporter:
    """Reads an archive in PyTorch: making one raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.package.PackageImporter("model.pt")
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: package.PackageImporter: archives of code are not written or read; ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("PackageImporter")


def is_from_package(obj: Any) -> bool:
    """Was an object, or its class, made from an archive?

    Args:
        obj (Any): the object.

    Returns:
        bool: False: no archive is read.

    Example:
        >>> lucid.package.is_from_package(lucid.nn.ReLU())
        False
    """
    return False
