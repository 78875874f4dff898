"""How `nn.LinearCrossEntropyLoss` goes through a batch, under the name that PyTorch has it by."""

from lucid.nn._functional.loss_linear import LinearCrossEntropyOptions

__all__ = ["LinearCrossEntropyOptions"]
