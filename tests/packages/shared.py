"""What a case of `tests/packages/cases` gets.

It runs once in PyTorch, which makes weights and inputs and keeps them, and once under `lucid.as_torch`, which takes
them. Only NumPy's files go between the two processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch


def array(value: Any) -> Any:
    """A tensor, number, list or string as an array."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            value = value.float()
        return value.numpy().copy()  # What is kept must not change with the tensor.
    if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return np.stack([array(v) for v in value])
    return np.asarray(value)


class Shared:
    """The values that both processes use, and the results of one of them.

    Attributes:
        recording: whether this process is PyTorch's, which makes the values.
        device: where the case is to run.
    """

    def __init__(self, values: dict[str, Any] | None, device: str, folder: Path) -> None:
        self.recording = values is None
        self.values: dict[str, Any] = {} if values is None else values
        self.results: dict[str, Any] = {}
        self.device, self.folder = torch.device(device), folder

    def tensor(self, name: str, make: Callable[[], Any]) -> Any:
        """A tensor that PyTorch makes and both use."""
        if self.recording:
            self.values[name] = array(make())
        return torch.from_numpy(np.array(self.values[name])).to(self.device)

    def randn(self, name: str, *size: int) -> Any:
        """Normal numbers."""
        return self.tensor(name, lambda: torch.randn(*size))

    def weights(self, name: str, model: Any) -> Any:
        """Moves a model to the device, with PyTorch's weights and buffers in it. Returns it."""
        state = model.state_dict()
        if self.recording:
            for key, value in state.items():
                self.values[f"{name}/{key}"] = array(value)
        else:
            mine = {k.removeprefix(f"{name}/") for k in self.values if k.startswith(f"{name}/")}
            assert mine == set(state), f"{name}: {sorted(mine ^ set(state))[:5]}"
            model.load_state_dict({k: torch.from_numpy(np.array(self.values[f"{name}/{k}"])) for k in state})
        return model.to(self.device)

    def result(self, name: str, value: Any) -> None:
        """A value that is compared: numbers nearly, all else exactly."""
        assert name not in self.results, name
        self.results[name] = array(value)

    def gradients(self, name: str, model: Any, most: int = 4) -> None:
        """The sums of absolute gradients of all parameters, and some whole ones."""
        given = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
        self.result(f"{name}/gradients", [n for n, _ in given])
        self.result(f"{name}/sums", torch.stack([g.abs().sum() for _, g in given]))
        for n, g in given[:: max(len(given) // most, 1)]:
            self.result(f"{name}/{n}.grad", g)
