"""Extensions in C++ and CUDA, as `torch.utils.cpp_extension`.

Those are written against PyTorch's C++ interface, which is not here, so building one raises an error that says
what there is instead. What set-up scripts ask for first is answered.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

from lucid import errors

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "SyclExtension",
    "check_compiler_is_gcc",
    "check_compiler_ok_for_platform",
    "get_compiler_abi_compatibility_and_version",
    "get_cxx_compiler",
    "get_default_build_root",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "remove_extension_h_precompiler_headers",
    "verify_ninja_availability",
]

#: None: nothing is compiled for CUDA, ROCm or SYCL; packages that see this leave their kernels out.
CUDA_HOME: str | None = None
CUDNN_HOME: str | None = None
ROCM_HOME: str | None = None
SYCL_HOME: str | None = None
IS_HIP_EXTENSION = False
IS_WINDOWS = sys.platform == "win32"
IS_MACOS = sys.platform.startswith("darwin")
IS_LINUX = sys.platform.startswith("linux")


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise errors.NotImplementedError(
            f"utils.cpp_extension.{name}: extensions for PyTorch's C++ interface are not built; write kernels with "
            "metal.run_kernel or cuda.run_kernel, and ops with library.custom_op"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"""Raises an error: `{name}` builds against PyTorch's C++ interface.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.utils.cpp_extension.{name}()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: utils.cpp_extension.{name}: extensions for PyTorch's C++ interface ...
    """
    return refuse


load = _refusal("load")
load_inline = _refusal("load_inline")
CppExtension = _refusal("CppExtension")
CUDAExtension = _refusal("CUDAExtension")
SyclExtension = _refusal("SyclExtension")
include_paths = _refusal("include_paths")
library_paths = _refusal("library_paths")


class BuildExtension:
    """The command of set-up scripts that builds extensions: making one raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.utils.cpp_extension.BuildExtension()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: utils.cpp_extension.BuildExtension: extensions for PyTorch's C++ interface ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refusal("BuildExtension")()

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The command with options, for a set-up script's `cmdclass`.

        Args:
            **options (Any): the options.

        Returns:
            type: the class itself, of which none can be made.
        """
        return cls


def get_cxx_compiler() -> str:
    """The C++ compiler's command: `$CXX`, or what the system calls it.

    Returns:
        str: the command.

    Example:
        >>> isinstance(lucid.utils.cpp_extension.get_cxx_compiler(), str)
        True
    """
    return os.environ.get("CXX", "cl" if IS_WINDOWS else "c++")


def check_compiler_is_gcc(compiler: str) -> bool:
    """Is a command g++?

    Args:
        compiler (str): the command.

    Returns:
        bool: whether it is there and calls itself so.

    Example:
        >>> lucid.utils.cpp_extension.check_compiler_is_gcc("cl")
        False
    """
    path = shutil.which(compiler)
    return IS_LINUX and path is not None and "g++" in os.path.basename(os.path.realpath(path))


def check_compiler_ok_for_platform(compiler: str) -> bool:
    """Is a compiler there?

    Args:
        compiler (str): its command.

    Returns:
        bool: whether it is.

    Example:
        >>> lucid.utils.cpp_extension.check_compiler_ok_for_platform("no-such-compiler")
        False
    """
    return shutil.which(compiler) is not None


def get_compiler_abi_compatibility_and_version(compiler: str) -> tuple[bool, Any]:
    """Does a compiler fit PyTorch's C++ interface?

    Args:
        compiler (str): its command.

    Returns:
        tuple of bool and str: False, for there is no such interface, and the version "0.0.0".

    Example:
        >>> lucid.utils.cpp_extension.get_compiler_abi_compatibility_and_version("c++")
        (False, '0.0.0')
    """
    return False, "0.0.0"


def get_default_build_root() -> str:
    """The folder for builds.

    Returns:
        str: the path, below the folder of temporary files; nothing is put there.

    Example:
        >>> lucid.utils.cpp_extension.get_default_build_root().endswith("lucid_extensions")
        True
    """
    return os.path.join(tempfile.gettempdir(), "lucid_extensions")


def is_ninja_available() -> bool:
    """Is the program ninja installed?

    Returns:
        bool: whether.

    Example:
        >>> isinstance(lucid.utils.cpp_extension.is_ninja_available(), bool)
        True
    """
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Raises an error where ninja is not installed.

    Raises:
        RuntimeError: there is none.

    Example:
        >>> if lucid.utils.cpp_extension.is_ninja_available():
        ...     lucid.utils.cpp_extension.verify_ninja_availability()
    """
    if not is_ninja_available():
        raise errors.RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def remove_extension_h_precompiler_headers() -> None:
    """Deletes precompiled headers: there are none.

    Example:
        >>> lucid.utils.cpp_extension.remove_extension_h_precompiler_headers()
    """
