"""MLX's 4-bit floats, `mxfp4` and `nvfp4`, as bfloat16, which has all of their values.

An element is E2M1: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, and a sign. 32 of them share a power of two (E8M0) in `mxfp4`, 16
share an E4M3 in `nvfp4`.

Reference:
    OCP Microscaling Formats (MX) Specification, 2023.
"""

from __future__ import annotations

import lucid
from lucid import Tensor, errors

#: Elements that share a scale, by mode.
FLOAT_MODES = {"mxfp4": 32, "nvfp4": 16}
_E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def _e4m3(byte: int) -> float:
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if byte & 128 else size


def _scales(mode: str) -> list[float]:
    if mode == "nvfp4":
        return [_e4m3(byte) for byte in range(256)]
    return [float("nan") if byte == 255 else 2.0 ** (byte - 127) for byte in range(256)]


def float4(words: Tensor, scales: Tensor, mode: str) -> Tensor:
    """The matrices (…, K) in bfloat16 of packed words (…, K / 8), lowest bits first, and of bytes that are scales
    (…, K / group). Raises ValueError where they do not fit together."""
    if mode not in FLOAT_MODES:
        raise errors.ValueError(f"float4: mode must be one of {', '.join(FLOAT_MODES)}, not {mode!r}")
    group = FLOAT_MODES[mode]
    fits = words.ndim >= 2 and words.shape[:-1] == scales.shape[:-1] and words.dtype == lucid.int32
    if not fits or scales.dtype != lucid.uint8 or words.shape[-1] * 8 != scales.shape[-1] * group:
        raise errors.ValueError(
            f"load: {mode} words {words.dtype} {tuple(words.shape)} and scales {scales.dtype} {tuple(scales.shape)} do "
            "not fit together"
        )
    table = lucid.tensor([*_E2M1, *(-x for x in _E2M1)], dtype=lucid.bfloat16)
    by = lucid.tensor(_scales(mode), dtype=lucid.bfloat16)
    rows, columns = words[..., 0].numel(), words.shape[-1] * 8
    made = lucid.empty((rows, columns), dtype=lucid.bfloat16)
    flat, own = words.reshape(rows, -1), scales.reshape(rows, -1)
    shifts = lucid.arange(0, 32, 4, dtype=lucid.int32)
    # Some rows at a time: indices take sixteen times what packed elements do.
    step = max(1, (1 << 22) // columns)
    for at in range(0, rows, step):
        q = (flat[at : at + step, :, None] >> shifts) & 15
        values = table.index_select(0, q.reshape(-1)).reshape(-1, group)
        scale = by.index_select(0, own[at : at + step].reshape(-1).to(lucid.int64))
        made[at : at + step] = (values * scale[:, None]).reshape(-1, columns)
    return made.reshape((*words.shape[:-1], columns))
