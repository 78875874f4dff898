"""What `Module.to` and its kin do with parameters, as `torch.__future__`: keep each object and give it other data (the
default), put new objects in their place, or swap the contents of old and new objects."""

from __future__ import annotations

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Has conversions of modules put new parameters in place of the old ones, which optimizers then do not know.

    Args:
        value (bool): whether. Default: they keep the objects and change their data.

    Example:
        >>> lucid.__future__.set_overwrite_module_params_on_conversion(False)
    """
    global _overwrite
    _overwrite = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """Do conversions of modules make new parameters?

    Returns:
        bool: whether.

    Example:
        >>> lucid.__future__.get_overwrite_module_params_on_conversion()
        False
    """
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Has conversions of modules swap each parameter with a converted one (`lucid.utils.swap_tensors`).

    Args:
        value (bool): whether.

    Example:
        >>> lucid.__future__.set_swap_module_params_on_conversion(False)
    """
    global _swap
    _swap = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """Do conversions of modules swap the contents of parameters?

    Returns:
        bool: whether.

    Example:
        >>> lucid.__future__.get_swap_module_params_on_conversion()
        False
    """
    return _swap
