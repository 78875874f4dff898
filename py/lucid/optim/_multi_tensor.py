"""PyTorch's optimizers with `foreach=True` from the start. A step is one call of the engine with it and without."""

from __future__ import annotations

from typing import Any

from lucid import optim


def partialclass(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A subclass whose instances are made with these arguments, too."""

    def __init__(self: Any, *more: Any, **others: Any) -> None:
        cls.__init__(self, *args, *more, **{**kwargs, **others})

    body = {"__init__": __init__, "__doc__": cls.__doc__, "__module__": __name__}
    return type(cls)(cls.__name__, (cls,), body)


Adadelta = partialclass(optim.Adadelta, foreach=True)
Adagrad = partialclass(optim.Adagrad, foreach=True)
Adam = partialclass(optim.Adam, foreach=True)
AdamW = partialclass(optim.AdamW, foreach=True)
Adamax = partialclass(optim.Adamax, foreach=True)
ASGD = partialclass(optim.ASGD, foreach=True)
NAdam = partialclass(optim.NAdam, foreach=True)
RAdam = partialclass(optim.RAdam, foreach=True)
RMSprop = partialclass(optim.RMSprop, foreach=True)
Rprop = partialclass(optim.Rprop, foreach=True)
SGD = partialclass(optim.SGD, foreach=True)
