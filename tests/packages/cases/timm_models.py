"""Architectures of timm: outputs, gradients and a step of training."""

from __future__ import annotations

from typing import Any

import timm
import torch
import torch.nn.functional as F

# name: (size of the input, arguments that make it small)
MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (64, {}),
    "resnetv2_50": (64, {"layers": (1, 1, 1, 1), "channels": (32, 64, 96, 128)}),
    "vit_tiny_patch16_224": (64, {"img_size": 64, "depth": 2}),
    "deit_tiny_patch16_224": (64, {"img_size": 64, "depth": 2}),
    "swin_tiny_patch4_window7_224": (56, {"img_size": 56, "depths": (1, 1, 1, 1), "embed_dim": 24}),
    "convnext_atto": (64, {}),
    "efficientnet_b0": (64, {}),
    "mobilenetv3_small_100": (64, {}),
    "mixer_s32_224": (64, {"img_size": 64}),
    "regnetx_002": (64, {}),
    "densenet121": (64, {"block_config": (1, 2, 2, 1)}),
    "beit_base_patch16_224": (64, {"img_size": 64, "depth": 2, "embed_dim": 96, "num_heads": 3}),
    "coatnet_nano_rw_224": (64, {"img_size": 64}),
    "eva02_tiny_patch14_224": (56, {"img_size": 56, "depth": 2}),
    "poolformer_s12": (64, {}),
    "levit_128s": (64, {"img_size": 64}),
}


def case_models(shared: Any) -> None:
    for name, (size, options) in MODELS.items():
        model = shared.weights(name, timm.create_model(name, num_classes=7, **options)).eval()
        x = shared.randn(f"{name}.x", 2, 3, size, size)
        with torch.no_grad():
            shared.result(f"{name}", model(x))
            shared.result(f"{name}.features", model.forward_features(x))


case_models.on_gpu = True


def case_training(shared: Any) -> None:
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3

    for name, opt in (("resnet18", "sgd"), ("vit_tiny_patch16_224", "adamw"), ("mobilenetv3_small_100", "lamb")):
        options = {"drop_rate": 0.0} if name.startswith("mobile") else MODELS[name][1]
        model = shared.weights(name, timm.create_model(name, num_classes=5, **options)).train()
        optimizer = create_optimizer_v2(model, opt=opt, lr=1e-3, weight_decay=0.01)
        scheduler = CosineLRScheduler(optimizer, t_initial=4, warmup_t=1, warmup_lr_init=1e-4)
        ema = ModelEmaV3(model, decay=0.9)
        x = shared.randn(f"{name}.x", 4, 3, 64, 64)
        y = shared.tensor(f"{name}.y", lambda: torch.randint(0, 5, (4,)))
        loss_of, losses = LabelSmoothingCrossEntropy(0.1), []
        for step in range(3):
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if step == 0:
                shared.gradients(name, model)
            optimizer.step()
            scheduler.step(step)
            ema.update(model)
            losses.append(loss.detach())
        shared.result(f"{name}.losses", losses)
        shared.result(f"{name}.rates", [g["lr"] for g in optimizer.param_groups])
        shared.result(f"{name}.ema", F.softmax(ema.module.eval()(x), -1))


def case_data_and_features(shared: Any) -> None:
    """timm's transforms of images, its feature extractors by hooks and by fx, and its registry."""
    from PIL import Image
    from timm.data import create_transform, resolve_data_config
    from timm.models import create_feature_extractor

    image = Image.new("RGB", (80, 60))
    image.putdata([(i % 256, (i * 7) % 256, (i * 13) % 256) for i in range(80 * 60)])
    model = shared.weights("resnet18", timm.create_model("resnet18", features_only=True, out_indices=(1, 3))).eval()
    config = resolve_data_config({}, model=model)
    x = create_transform(**{**config, "input_size": (3, 64, 64)})(image)
    shared.result("transform", x)
    for i, f in enumerate(model(x[None])):
        shared.result(f"features.{i}", f)
    plain = shared.weights("graph", timm.create_model("resnet18", num_classes=3)).eval()
    extract = create_feature_extractor(plain, ["layer2.0.act2", "global_pool"])
    for i, f in enumerate(extract(x[None])):
        shared.result(f"graph.{i}", f)
    shared.result("names", timm.list_models("vit_tiny*"))
