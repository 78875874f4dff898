"""Starting a function as one job of several processes: `elastic_launch`."""

from lucid.distributed.launcher.api import LaunchConfig as LaunchConfig
from lucid.distributed.launcher.api import elastic_launch as elastic_launch

__all__ = ["LaunchConfig", "elastic_launch"]
