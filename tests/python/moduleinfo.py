"""Compares layers and optimizers with PyTorch on PyTorch's own samples, as `opinfo` does ops.

    python -m tests.python.moduleinfo [--device gpu] [--only Linear,Adam] [--dtypes float32]

A layer gets PyTorch's weights; then its result, the gradients of its inputs and parameters, and its buffers after the
call are compared, in train and in eval mode. An optimizer gets PyTorch's parameters and gradients for a few steps; then
its parameters and its state are compared. What PyTorch says must be refused is, with its kind of error. `CTCLoss` is in
the list because its gradient is documented to differ, lazy layers are left out, as their weights are not there yet.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import torch

from .opinfo import Apart, Slow, Translator, attempt, compare_errors, compare_gradients, difference, flat, time_limit

#: Layers whose results are random when they train.
RANDOM = ("Dropout", "Fractional", "RReLU", "AlphaDropout")


class Different(Exception):
    """What differs, or None: both refused."""


def built(module: Any, sample: Any, translate: Translator, dtype: Any) -> tuple[Any, Any]:
    """PyTorch's layer and ours."""
    args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
    ours_args, ours_kwargs = translate(args), translate(kwargs)
    theirs, refusal = attempt(module, *args, **kwargs)
    ours, error = attempt(getattr(lucid.nn, module.__name__), *ours_args, **ours_kwargs)
    if refusal or error:
        raise Different(compare_errors(refusal, error))
    theirs = theirs.to(dtype)
    ours = ours.to(translate.device).to(getattr(lucid, str(dtype).rsplit(".", 1)[-1]))
    return theirs, ours


def share(theirs: Any, ours: Any, translate: Translator) -> None:
    """PyTorch's parameters and buffers in our layer."""
    want, have = theirs.state_dict(), ours.state_dict()
    if list(want) != list(have):
        raise Different(f"state {list(want)} for {list(have)}")
    ours.load_state_dict({k: translate.tensor(v.detach().clone()) for k, v in want.items()})
    pairs = zip(theirs.parameters(), ours.parameters(), strict=True)
    translate.leaves += [(p, q) for p, q in pairs if p.requires_grad]


def forward(info: Any, sample: Any, device: str, dtype: Any, training: bool, values: bool) -> str | None:
    """What differs in one call of a layer."""
    translate = Translator(device)
    try:
        theirs, ours = built(info.module_cls, sample, translate, dtype)
        share(theirs, ours, translate)
    except Different as e:
        return str(e) if e.args[0] else None
    theirs.train(training)
    ours.train(training)
    args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
    ours_args, ours_kwargs = translate(args), translate(kwargs)
    want, refusal = attempt(theirs, *args, **kwargs)
    got, error = attempt(ours, *ours_args, **ours_kwargs)
    if refusal or error:
        return compare_errors(refusal, error)
    a, b = flat(want), flat(got)
    if len(a) != len(b):
        return f"{len(a)} results for {len(b)}"
    for i, (p, q) in enumerate(zip(a, b, strict=True)):
        if why := difference(p, q, values):
            return f"result {i}: {why}"
    for (name, p), q in zip(theirs.named_buffers(), ours.buffers(), strict=True):
        if why := difference(p, q, values):
            return f"buffer {name}: {why}"
    pairs = [(p, q) for p, q in zip(a, b, strict=True) if isinstance(p, torch.Tensor)]
    pairs = [(p, q) for p, q in pairs if p.requires_grad or q.requires_grad]
    if any(p.requires_grad != q.requires_grad for p, q in pairs):
        return f"requires_grad {[p.requires_grad for p, _ in pairs]}"
    return compare_gradients(pairs, translate) if values and translate.leaves and pairs else None


def layers(info: Any, device: str, dtype: Any) -> Iterator[str]:
    name = info.module_cls.__name__
    if not hasattr(lucid.nn, name):
        yield "is missing"
        return
    if dtype not in info.dtypes or (dtype == torch.float64 and device == "gpu"):
        return
    for training in (True, False):
        mode = "train" if training else "eval"
        values = not (training and name.startswith(RANDOM))
        torch.manual_seed(0)
        how = {"device": "cpu", "dtype": dtype, "requires_grad": True, "training": training}
        for i, sample in enumerate(info.module_inputs_func(info, **how)):
            if sample.forward_input is None:
                continue
            shown = f"{sample.constructor_input.args} {sample.constructor_input.kwargs} {sample.desc}"[:120]
            try:
                with time_limit(30):
                    why = forward(info, sample, device, dtype, training, values)
            except Apart:
                continue
            except Slow:
                why = "more than 30 seconds"
            if why:
                yield f"{mode} {i} {shown}: {why}"
        if info.module_error_inputs_func is None:
            continue
        for bad in info.module_error_inputs_func(info, **how):
            try:
                why = forward(info, bad.module_error_input, device, dtype, training, values)
            except Apart:
                continue
            if why:
                yield f"{mode} {bad.error_regex[:60]}: {why}"


def stepped(info: Any, kwargs: dict[str, Any], device: str, dtype: Any) -> str | None:
    """What differs after some steps, in the parameters and in the state."""
    translate = Translator(device)
    torch.manual_seed(0)
    shapes = [(3, 2), (4, 4)] if info.optim_cls.__name__ == "Muon" else [(3, 2), (5,), ()]
    theirs = [torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes]
    ours = [translate.tensor(p) for p in theirs]
    ours_kwargs = translate(kwargs)
    a, refusal = attempt(info.optim_cls, theirs, **kwargs)
    b, error = attempt(getattr(lucid.optim, info.optim_cls.__name__), ours, **ours_kwargs)
    if refusal or error:
        return compare_errors(refusal, error)
    for step in range(4):
        grads = [torch.randn(p.shape, dtype=p.dtype) for p in theirs]

        def closure(params: Any = theirs, optimizer: Any = a) -> Any:
            optimizer.zero_grad()
            loss = sum(
                ((p - 1) * (p - 1).conj()).real.sum() if p.is_complex() else ((p - 1) ** 2).sum() for p in params
            )
            loss.backward()
            return loss

        def closure_here(params: Any = ours, optimizer: Any = b) -> Any:
            return closure(params, optimizer)

        for p, q, g in zip(theirs, ours, grads, strict=True):
            p.grad, q.grad = g.clone(), translate.tensor(g)
        if info.step_requires_closure:
            _, refusal = attempt(a.step, closure)
            _, error = attempt(b.step, closure_here)
        else:
            _, refusal = attempt(a.step)
            _, error = attempt(b.step)
        if refusal or error:
            return compare_errors(refusal, error)
        for i, (p, q) in enumerate(zip(theirs, ours, strict=True)):
            if why := difference(p, q, True):
                return f"parameter {i} after step {step}: {why}"
    want, have = a.state_dict(), b.state_dict()
    for key in want["state"]:
        s, t = want["state"][key], have["state"].get(key)
        if t is None or set(s) != set(t):
            return f"state {sorted(s)} for {t and sorted(t)}"
        for name, value in s.items():
            if isinstance(value, torch.Tensor) and (why := difference(value, t[name], True)):
                return f"state {name} of {key}: {why}"
    groups = [set(g) for g in want["param_groups"]], [set(g) for g in have["param_groups"]]
    return None if groups[0] == groups[1] else f"groups differ in {[g ^ h for g, h in zip(*groups, strict=True)]}"


def refused(info: Any, sample: Any, device: str, dtype: Any) -> str | None:
    translate = Translator(device)
    params = sample.params
    if params is None:
        params = [torch.nn.Parameter(torch.randn(2, 3, dtype=dtype))]
    ours_params = {translate(p) for p in params} if isinstance(params, set) else translate(params)
    ours_kwargs = translate(sample.kwargs)

    def call(cls: Any, params: Any, kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cls(params, **kwargs)

    _, refusal = attempt(call, info.optim_cls, params, sample.kwargs)
    _, error = attempt(call, getattr(lucid.optim, info.optim_cls.__name__), ours_params, ours_kwargs)
    return compare_errors(refusal, error)


def optimizers(info: Any, device: str, dtype: Any) -> Iterator[str]:
    if not hasattr(lucid.optim, info.optim_cls.__name__):
        yield "is missing"
        return
    if info.only_supports_sparse_grads or (dtype.is_complex and not info.supports_complex):
        return
    for sample in info.optim_inputs_func("cpu", dtype):
        for extra in ({}, *({name: True} for name in info.supported_impls)):
            if why := stepped(info, {**sample.kwargs, **extra}, device, dtype):
                yield f"({sample.desc}, {extra}): {why}"
    for bad in info.optim_error_inputs_func("cpu", dtype):
        if why := refused(info, bad.optimizer_error_input, device, dtype):
            yield f"({bad.optimizer_error_input.desc}): {why}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--only", default="", help="names of classes, with commas between")
    parser.add_argument("--dtypes", default="float32,float64,float16,bfloat16,complex64,complex128")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    only = set(filter(None, args.only.split(",")))
    total = 0
    every = [(i, i.module_cls, layers) for i in module_db] + [(i, i.optim_cls, optimizers) for i in optim_db]
    for info, cls, check in every:
        if (
            (only and cls.__name__ not in only)
            or cls.__name__.startswith("Lazy")
            or not cls.__module__.startswith(("torch.nn.modules", "torch.optim"))
        ):
            continue
        for name in args.dtypes.split(","):
            if name in ("float64", "complex128") and args.device == "gpu":
                continue
            for why in check(info, args.device, getattr(torch, name)):
                total += 1
                print(cls.__name__, name, why.replace("\n", " "), flush=True)
                if why == "is missing":
                    break
    print(f"{total} differences")


if __name__ == "__main__":
    main()
