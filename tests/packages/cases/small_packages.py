"""einops, safetensors, torchdiffeq, x_transformers, torchmetrics and gpytorch."""

from __future__ import annotations

from typing import Any

import torch


def case_einops(shared: Any) -> None:
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange, Reduce

    x = shared.randn("x", 2, 6, 4).requires_grad_()
    out = rearrange(x, "b (h w) c -> b c h w", h=2)
    shared.result("rearrange", out)
    shared.result("reduce", reduce(out, "b c (h 2) w -> b w c", "max"))
    shared.result("repeat", repeat(x, "b n c -> (b 2) c n"))
    shared.result("einsum", einsum(x, x, "b i c, b j c -> b i j"))
    packed, sizes = pack([x[:, 0], x[:, 1:]], "b * c")
    shared.result("unpack", unpack(packed, sizes, "b * c")[1])
    layers = torch.nn.Sequential(
        Rearrange("b (h w) c -> b c h w", h=2),
        EinMix("b c h w -> b k w h", weight_shape="c k", bias_shape="k", c=4, k=5),
        Reduce("b k w h -> b k", "mean"),
    )
    layers = shared.weights("layers", layers)
    layers(x).square().sum().backward()
    shared.result("grad", x.grad)
    shared.gradients("layers", layers)


def case_safetensors(shared: Any) -> None:
    from safetensors import safe_open
    from safetensors.torch import load, load_file, load_model, save, save_file, save_model

    x = shared.randn("x", 5, 4)
    given = {"a": x, "b": x.to(torch.bfloat16), "c": (x * 9).to(torch.int64), "d": x > 0, "e": x[:0].contiguous()}
    given = {k: v.cpu() for k, v in given.items()}
    path = str(shared.folder / "x.safetensors")
    save_file(given, path, metadata={"format": "pt"})
    for k, v in load_file(path).items():
        shared.result(f"file.{k}", v)
        shared.result(f"file.{k}.dtype", str(v.dtype).split(".")[1])
    for k, v in load(save(given)).items():
        shared.result(f"bytes.{k}", v)
    with safe_open(path, framework="pt", device="cpu") as f:
        shared.result("keys", sorted(f.keys()))
        shared.result("slice", f.get_slice("a")[1:3, :2])
        shared.result("metadata", f.metadata()["format"])
        shared.result("tensor", f.get_tensor("b"))
    model = shared.weights("model", torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3)))
    model[1].weight = torch.nn.Parameter(model[1].weight)
    save_model(model, path)
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3))
    shared.result("missing", [str(v) for v in load_model(other, path)[0]])
    shared.result("model", other(x.cpu()))


def case_torchdiffeq(shared: Any) -> None:
    from torchdiffeq import odeint, odeint_adjoint, odeint_event

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

        def forward(self, t: Any, y: Any) -> Any:
            return self.layers(y**3) * torch.cos(t)

    field = shared.weights("field", Field())
    start = shared.randn("start", 3, 2).requires_grad_()
    times = torch.linspace(0.0, 1.5, 6, device=shared.device)
    for method in ("dopri5", "rk4", "euler", "midpoint", "bosh3", "implicit_adams", "dopri8"):
        options: dict[str, Any] = {"options": {"step_size": 0.05}} if method in ("rk4", "euler", "midpoint") else {}
        shared.result(method, odeint(field, start, times, method=method, **options))
    out = odeint_adjoint(field, start, times)
    out.square().mean().backward()
    shared.result("adjoint", out)
    shared.result("start.grad", start.grad)
    shared.gradients("field", field)
    ball = torch.tensor([1.0, 0.0], device=shared.device)
    at, _ = odeint_event(
        lambda t, y: torch.stack([y[1], torch.full_like(y[0], -9.8)]),
        ball,
        torch.tensor(0.0, device=shared.device),
        event_fn=lambda t, y: y[0],
    )
    shared.result("event", at)


def case_x_transformers(shared: Any) -> None:
    from x_transformers import (
        AutoregressiveWrapper,
        Decoder,
        Encoder,
        TransformerWrapper,
        ViTransformerWrapper,
        XTransformer,
    )

    ids = shared.tensor("ids", lambda: torch.randint(1, 50, (2, 12)))
    decoder = Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    model = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=decoder)
    wrapped = shared.weights("decoder", AutoregressiveWrapper(model)).train()
    loss = wrapped(ids)
    loss.backward()
    shared.result("loss", loss)
    shared.gradients("decoder", wrapped)
    shared.result("generated", wrapped.eval().generate(ids[:, :4], 6, temperature=0.0))
    encoder = TransformerWrapper(
        num_tokens=50,
        max_seq_len=32,
        attn_layers=Encoder(dim=32, depth=2, heads=4, alibi_pos_bias=True, attn_flash=True),
    )
    shared.result("encoder", shared.weights("encoder", encoder).eval()(ids, mask=ids > 9))
    vit = ViTransformerWrapper(
        image_size=16, patch_size=4, num_classes=3, attn_layers=Encoder(dim=32, depth=2, heads=4)
    )
    shared.result("vit", shared.weights("vit", vit).eval()(shared.randn("picture", 2, 3, 16, 16)))
    both = XTransformer(
        dim=32, enc_num_tokens=50, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=50, dec_depth=1,
        dec_heads=2, dec_max_seq_len=16,
    )  # fmt: skip
    shared.result("both", shared.weights("both", both).train()(ids, ids))


def case_torchmetrics(shared: Any) -> None:
    import torchmetrics as tm
    from torchmetrics import functional as fm
    from torchmetrics.detection import MeanAveragePrecision  # noqa: F401

    p = shared.tensor("p", lambda: torch.softmax(torch.randn(40, 5), -1))
    y = shared.tensor("y", lambda: torch.randint(0, 5, (40,)))
    many = {"task": "multiclass", "num_classes": 5}
    metrics = tm.MetricCollection(
        {
            "accuracy": tm.Accuracy(**many),
            "top2": tm.Accuracy(**many, top_k=2),
            "precision": tm.Precision(**many, average="macro"),
            "recall": tm.Recall(**many, average="none"),
            "f1": tm.F1Score(**many, average="weighted"),
            "auroc": tm.AUROC(**many),
            "ap": tm.AveragePrecision(**many, thresholds=20),
            "confusion": tm.ConfusionMatrix(**many),
            "kappa": tm.CohenKappa(**many),
            "mcc": tm.MatthewsCorrCoef(**many),
            "ece": tm.CalibrationError(**many),
        }
    ).to(shared.device)
    for i in range(0, 40, 10):
        metrics.update(p[i : i + 10], y[i : i + 10])
    for name, value in metrics.compute().items():
        shared.result(name, value)
    a, b = p[:, 0], (y == 0).float() * 0.7 + p[:, 1]
    for name in ("mean_squared_error", "r2_score", "pearson_corrcoef", "spearman_corrcoef", "explained_variance"):
        shared.result(name, getattr(fm, name)(a, b))
    shared.result("cosine", fm.cosine_similarity(p[:20], p[20:], reduction="mean"))
    image = shared.tensor("image", lambda: torch.rand(2, 3, 24, 24))
    other = (image * 0.9 + 0.05).clamp(0, 1)
    shared.result("ssim", fm.structural_similarity_index_measure(other, image, data_range=1.0))
    shared.result("psnr", fm.peak_signal_noise_ratio(other, image, data_range=1.0))
    shared.result("map", fm.retrieval_average_precision(a, y == 0))
    words = (["the cat is on the mat"], [["there is a cat on the mat"]])
    shared.result("bleu", fm.bleu_score(*words, n_gram=2))
    shared.result("wer", fm.word_error_rate(words[0], ["the cat sat on a mat"]))
    mean = tm.MeanMetric().to(shared.device)
    mean.update(a, weight=b)
    shared.result("mean", mean.compute())
    running = tm.wrappers.BootStrapper(tm.MeanSquaredError(), num_bootstraps=3)
    running.update(a.cpu(), b.cpu())
    shared.result("bootstrap", sorted(running.compute()))
    shared.result("state", sorted(tm.Accuracy(**many).metric_state))


case_torchmetrics.on_gpu = True


def case_gpytorch(shared: Any) -> None:
    import gpytorch

    x = shared.tensor("x", lambda: torch.linspace(0, 1, 30))
    y = torch.sin(6 * x) + 0.1 * shared.randn("noise", 30)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel() + gpytorch.kernels.MaternKernel(nu=1.5)
            )

        def forward(self, at: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(shared.device)
    model = Model(likelihood).to(shared.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    shared.result("losses", losses)
    shared.result("scale", model.covar_module.outputscale)
    model.eval()
    likelihood.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var(False):
        found = likelihood(model(torch.linspace(0, 1.2, 9, device=shared.device)))
        shared.result("mean", found.mean)
        shared.result("variance", found.variance)
        shared.result("low", found.confidence_region()[0])
