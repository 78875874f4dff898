"""`packaging.version`, where the package `packaging` is installed; importing this fails where it is not."""

from packaging.version import InvalidVersion as InvalidVersion
from packaging.version import Version as Version
from packaging.version import parse as parse
