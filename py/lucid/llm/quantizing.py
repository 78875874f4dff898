"""GPTQ for language models: layer by layer, each with the inputs that the quantised layers before it give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import errors, nn
from lucid.llm.model import CausalLM
from lucid.quantization import quantize
from lucid.quantization.gptq import Hessian, gptq_linear


def calibration_windows(model: CausalLM, tokens: Sequence[int], count: int = 32, window: int = 512) -> list[list[int]]:
    """Up to `count` windows of a text's tokens, spread evenly. Raises ValueError for texts that are too short."""
    window = min(window, model.config.context, len(tokens))
    if window < 2 or count < 1:
        raise errors.ValueError("gptq: the calibration text needs at least two tokens")
    whole = len(tokens) // window
    count = min(count, whole)
    return [list(tokens[i * whole // count * window :][:window]) for i in range(count)]


def _catch(hessian: Hessian) -> Any:
    def hook(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        hessian.add(inputs[0])

    return hook


@lucid.no_grad()
def gptq(
    model: CausalLM,
    windows: Sequence[Sequence[int]],
    bits: int = 4,
    group_size: int = 64,
    damping: float = 0.01,
    others: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> CausalLM:
    """Quantises a model in place: its layers' linear weights by GPTQ, the rest (embeddings, experts) to the nearest.

    Args:
        model: The model, with dense weights.
        windows: Texts of one length as tokens, whose activations the weights are rounded for.
        bits, group_size: As of `lucid.quantization.quantize`.
        damping: As of `gptq_linear`.
        others: Also quantise the rest, to the nearest. Default: True.
        progress: Called with how many layers are done, and of how many.

    Returns:
        The model.

    Raises ValueError for windows of several lengths, and where there are none.
    """
    if not windows or len({len(w) for w in windows}) != 1:
        raise errors.ValueError("gptq: needs calibration windows, all of one length")
    states = []
    for window in windows:
        tokens = lucid.tensor([list(window)], dtype=lucid.int64, device=model.device)
        states.append(model.begin(tokens))
    layers: Any = model.model.layers
    for i, layer in enumerate(layers):
        found = {
            path: m
            for path, m in layer.named_modules()
            if type(m) is nn.Linear and m.in_features % group_size == 0 and not path.endswith("mlp.gate")
        }
        hessians = {path: Hessian(m.in_features) for path, m in found.items()}
        handles = [m.register_forward_pre_hook(_catch(hessians[path])) for path, m in found.items()]
        for x, angles, masks in states:
            layer(x, *angles[i], masks, None)
        for handle in handles:
            handle.remove()
        for path, module in found.items():
            lead, _, last = path.rpartition(".")
            made = gptq_linear(module, hessians[path], bits, group_size, damping)
            setattr(layer.get_submodule(lead) if lead else layer, last, made)
        states = [(layer(x, *angles[i], masks, None), angles, masks) for x, angles, masks in states]
        for x, _, _ in states:
            x.eval()
        if progress is not None:
            progress(i + 1, len(layers))
    if others:
        # Rows that do not fall into groups stay as they are, as `quantize` leaves them.
        with contextlib.suppress(errors.ValueError):
            quantize(model, bits, group_size)
    return model
