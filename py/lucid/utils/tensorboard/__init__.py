"""Event files of TensorBoard, as `torch.utils.tensorboard`: `SummaryWriter` writes what `tensorboard --logdir` shows.

The files are written by this package alone: neither `tensorboard` nor `protobuf` is needed, only NumPy. Figures need
matplotlib; boxes and videos need Pillow.
"""

from __future__ import annotations

from lucid.utils.tensorboard._event_file import FileWriter as FileWriter
from lucid.utils.tensorboard._event_file import RecordWriter as RecordWriter
from lucid.utils.tensorboard.writer import SummaryWriter as SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
