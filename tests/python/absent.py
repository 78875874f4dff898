"""The modules whose public names are compared with PyTorch's; `lucid._absent` has the names that are not there."""

from __future__ import annotations

import importlib
import types
from typing import Any

from lucid._absent import ABSENT as ABSENT
from lucid._absent import MODULES as MODULES

#: The modules whose names are compared; "Tensor" is the class.
COMPARED = (
    *("", "Tensor", "nn", "nn.functional", "nn.grad", "nn.init", "nn.modules", "nn.modules.module", "nn.parameter"),
    *("nn.common_types", "nn.parallel", "nn.modules.activation", "nn.modules.adaptive", "nn.modules.batchnorm"),
    *("nn.modules.channelshuffle", "nn.modules.container", "nn.modules.conv", "nn.modules.distance"),
    *("nn.modules.dropout", "nn.modules.flatten", "nn.modules.fold", "nn.modules.instancenorm", "nn.modules.lazy"),
    *("nn.modules.linear", "nn.modules.linear_cross_entropy_options", "nn.modules.loss", "nn.modules.normalization"),
    *("nn.modules.padding", "nn.modules.pixelshuffle", "nn.modules.pooling", "nn.modules.rnn", "nn.modules.sparse"),
    *("nn.modules.transformer", "nn.modules.upsampling", "nn.modules.utils"),
    *("nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations", "nn.utils.prune"),
    *("nn.utils.stateless", "nn.utils.fusion", "nn.utils.clip_grad", "nn.utils.convert_parameters", "nn.utils.init"),
    *("nn.utils.memory_format", "nn.utils.spectral_norm", "nn.utils.weight_norm"),
    *("fft", "linalg", "special", "sparse", "func", "random", "signal", "signal.windows"),
    *("distributions", "distributions.constraint_registry", "distributions.constraints", "distributions.kl"),
    *("distributions.transforms", "distributions.utils", "distributions.distribution", "distributions.exp_family"),
    *("distributions.relaxed_bernoulli", "distributions.relaxed_categorical", "distributions.one_hot_categorical"),
    *(
        "autograd",
        "autograd.functional",
        "autograd.graph",
        "autograd.forward_ad",
        "autograd.function",
        "autograd.profiler",
    ),
    *("autograd.grad_mode", "autograd.anomaly_mode", "autograd.gradcheck", "autograd.variable", "overrides", "storage"),
    *("optim", "optim.lr_scheduler", "optim.swa_utils", "optim.optimizer", "optim.adadelta", "optim.adagrad"),
    *("optim.adam", "optim.adamax", "optim.adamw", "optim.asgd", "optim.lbfgs", "optim.nadam", "optim.radam"),
    *("optim.rmsprop", "optim.rprop", "optim.sgd", "optim.sparse_adam", "utils", "utils.data", "utils.checkpoint"),
    *(
        "utils.hooks",
        "utils.dlpack",
        "amp",
        "amp.grad_scaler",
        "amp.autocast_mode",
        "serialization",
        "profiler",
        "testing",
    ),
    *(
        "types",
        "return_types",
        "backends",
        "mps",
        "cpu",
        "cuda",
        "cuda.memory",
        "cuda.random",
        "cuda.nvtx",
        "cuda.streams",
        "nn.attention",
        "cuda.amp",
        "cuda.amp.autocast_mode",
        "cuda.amp.common",
        "cuda.amp.grad_scaler",
        "accelerator",
        "multiprocessing",
        "compiler",
        "futures",
        "functional",
        "fx",
        "hub",
        "jit",
        "library",
        "quasirandom",
        "utils.model_zoo",
        "utils.tensorboard",
        "utils.weak",
        "version",
    ),
)


def public(framework: types.ModuleType, module: str) -> list[str]:
    """The public names of a module, or of the class of tensors: those that it lists, or else those that are its own."""
    held = (
        framework.Tensor
        if module == "Tensor"
        else importlib.import_module(f"{framework.__name__}.{module}".rstrip("."))
    )
    listed = [] if module == "Tensor" else getattr(held, "__all__", [])
    own = [n for n in dir(held) if not n.startswith("_") and _is_own(held, module, getattr(held, n, None))]
    return sorted({n for n in (*listed, *own) if not n.startswith("_")})


def _is_own(held: Any, module: str, value: Any) -> bool:
    """Is this value the module's own, rather than something that it imports?"""
    if isinstance(value, types.ModuleType) or value is None:
        return False
    if module == "Tensor" or not hasattr(value, "__module__"):
        return module in ("Tensor", "")
    # What is made in C says no module, or one of C's.
    home = value.__module__
    return home is None or home == held.__name__ or home.startswith(("torch._C", "torch.return_types")) or module == ""
