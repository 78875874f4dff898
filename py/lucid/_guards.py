"""Tensors without memory that PyTorch's compiler traces with: there are none, which is what is asked here."""

from __future__ import annotations

from typing import Any


def detect_fake_mode(inputs: Any = None) -> None:
    """The mode of the fake tensors among `inputs`: `None`, for there are none."""


def active_fake_mode() -> None:
    """The mode that makes new tensors fake ones: `None`."""
