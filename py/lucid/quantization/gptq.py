"""GPTQ: weights rounded one column after the other, the columns that come later making up for the error.

Reference:
    E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2022.
"""

from __future__ import annotations

import lucid
from lucid import Tensor, errors
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.quantized import QuantizedLinear


def pack(elements: Tensor, bits: int) -> Tensor:
    """Integers (rows, columns) below `2 ** bits` as the packed words (rows, columns / 32 · bits) of `quantize_affine`.

    Example:
        >>> lucid.quantization.gptq.pack(lucid.ones(1, 32, dtype=lucid.int64), 4)
        tensor([[286331153, 286331153, 286331153, 286331153]], dtype=lucid.int32)
    """
    rows, columns = elements.shape
    at = lucid.arange(bits, device=elements.device)
    single = (elements.to(lucid.int64)[..., None] >> at) & 1
    # The bits of a row, one after the other, are cut into words.
    words = single.reshape(rows, columns * bits // 32, 32) << lucid.arange(32, device=elements.device)
    whole = words.sum(-1)
    return lucid.where(whole >= 1 << 31, whole - (1 << 32), whole).to(lucid.int32)


class Hessian:
    """`H = Σ x xᵀ` over the inputs of a layer, (columns, columns) float64 on the CPU."""

    def __init__(self, columns: int) -> None:
        self.sum = lucid.zeros(columns, columns, dtype=lucid.float64, device="cpu")
        self.count = 0

    def add(self, x: Tensor) -> None:
        """Takes inputs (…, columns)."""
        rows = x.detach().reshape(-1, x.shape[-1]).to(lucid.float32)
        self.sum = self.sum + (rows.T @ rows).to("cpu").to(lucid.float64)
        self.count += rows.shape[0]


@lucid.no_grad()
def gptq_linear(linear: Linear, hessian: Hessian, bits: int, group_size: int, damping: float = 0.01) -> QuantizedLinear:
    """A layer quantised so that its outputs for the inputs that `hessian` has seen change little.

    Each column's rounding error, over the diagonal of the Cholesky factor `U` of `H⁻¹ = Uᵀ U`, is taken from the later
    columns by that factor's row: the update that minimises `‖W X − Q X‖²` with the columns before fixed. Scale and bias
    of a group are those of `quantize_affine` for what its columns have become.

    Args:
        linear: The layer.
        hessian: Of its inputs.
        bits, group_size: As of `quantize`.
        damping: What is added to the diagonal, times its mean. Default: 0.01.

    Returns:
        The quantised layer.

    Raises ValueError where no input was seen or damping is not positive.
    """
    if hessian.count == 0 or not damping > 0:
        raise errors.ValueError("gptq: needs inputs that the layer has seen, and a positive damping")
    weight = linear.weight
    made = QuantizedLinear(
        linear.in_features, linear.out_features, False, group_size, bits, weight.device, weight.dtype
    )
    w = weight.detach().to("cpu").to(lucid.float32)
    columns = w.shape[1]
    h = hessian.sum.clone()
    diagonal = h.diagonal()
    dead = diagonal == 0
    mean = float(diagonal.mean().item()) or 1.0
    h = h + lucid.diag(lucid.full((columns,), damping * mean, dtype=h.dtype) + dead.to(h.dtype) * mean)
    upper = lucid.linalg.cholesky(lucid.linalg.inv(h)).T.to(lucid.float32).contiguous()
    most = float((1 << bits) - 1)
    elements, scales, biases = [], [], []
    for start in range(0, columns, group_size):
        end = start + group_size
        group = w[:, start:end].clone()
        _, scale, bias = lucid.quantize_affine(group.contiguous(), group_size=group_size, bits=bits)
        wrong = []
        for j in range(group_size):
            row = upper[start + j]
            column = group[:, j : j + 1]
            q = ((column - bias) / scale).round().clamp(0.0, most)
            error = (column - (q * scale + bias)) / row[start + j]
            if j + 1 < group_size:
                group[:, j + 1 :] = group[:, j + 1 :] - error * row[start + j + 1 : end]
            elements.append(q)
            wrong.append(error)
        if end < columns:
            w = lucid.cat([w[:, :end], w[:, end:] - lucid.cat(wrong, 1) @ upper[start:end, end:]], 1)
        scales.append(scale)
        biases.append(bias)
    device, dtype = weight.device, weight.dtype
    made.set_packed(
        pack(lucid.cat(elements, 1), bits).to(device),
        lucid.cat(scales, 1).to(dtype).to(device),
        lucid.cat(biases, 1).to(dtype).to(device),
    )
    made.bias = linear.bias
    return made.train(linear.training)
