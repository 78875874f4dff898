"""torchvision: models, ops with gradients, transforms of both versions, data sets, and files of pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torchvision
from torchvision import models, ops
from torchvision.transforms import v2

MODELS = (
    *("resnet18", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "vit_b_32", "swin_t"),
    *("regnet_y_400mf", "shufflenet_v2_x0_5", "mnasnet0_5", "googlenet", "densenet121"),
)


def _fill(p: Any, spread: Any) -> None:
    """Numbers that both make, so that no file carries these many."""
    numbers = (torch.arange(p.numel()) * 7919 % 10007).to(torch.float32) / 10007 - 0.5
    p.copy_(numbers.reshape(p.shape) * (3.4 * spread))


def case_models(shared: Any) -> None:
    x = shared.randn("x", 1, 3, 64, 64)
    for name in MODELS:
        options: dict[str, Any] = {"image_size": 64, "weights": None} if name.startswith("vit") else {}
        options |= {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        model = models.get_model(name, num_classes=5, **options).eval()
        with torch.no_grad():
            spreads = shared.tensor(
                f"{name}.std",
                lambda m=model: torch.stack([p.std() if p.numel() > 1 else p.sum() for p in m.parameters()]),
            )
            for p, spread in zip(model.parameters(), spreads.cpu(), strict=True):
                _fill(p, spread if spread > 0 else 0.3)
            shared.result(name, model.to(shared.device)(x))


def case_dense_models(shared: Any) -> None:
    """Segmentation, video and detection."""
    x = shared.randn("x", 2, 3, 64, 64)
    model = shared.weights("lraspp", models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None))
    shared.result("lraspp", model.eval()(x)["out"])
    model = shared.weights("r3d", models.video.r3d_18(num_classes=3))
    shared.result("r3d", model.eval()(shared.randn("clip", 1, 3, 4, 32, 32)))
    model = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96, rpn_post_nms_top_n_test=50
    )
    model = shared.weights("rcnn", model)
    boxes = torch.tensor([[5.0, 6.0, 40.0, 50.0], [20.0, 10.0, 60.0, 30.0]], device=shared.device)
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2], device=shared.device)} for _ in range(2)]
    found = model.eval()(list(x))
    shared.result("rcnn.boxes", found[0]["boxes"][:5])
    shared.result("rcnn.scores", found[0]["scores"][:5])
    losses = models.detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=4, min_size=64, max_size=96, trainable_backbone_layers=5
    )
    losses = shared.weights("retina", losses).train()(list(x), targets)
    sum(losses.values()).backward()
    shared.result("retina", torch.stack([losses[k] for k in sorted(losses)]))


def _boxes(shared: Any, n: int) -> Any:
    def make() -> Any:
        low = torch.rand(n, 2) * 20
        return torch.cat([low, low + torch.rand(n, 2) * 12 + 0.5], 1)

    return shared.tensor("boxes", make)


def case_ops(shared: Any) -> None:
    boxes, scores = _boxes(shared, 60), shared.tensor("scores", lambda: torch.rand(60))
    group = shared.tensor("group", lambda: torch.randint(0, 3, (60,)))
    for limit in (0.1, 0.3, 0.5, 0.9):
        shared.result(f"nms.{limit}", ops.nms(boxes, scores, limit))
        shared.result(f"batched.{limit}", ops.batched_nms(boxes, scores, group, limit))
    shared.result("nms.none", ops.nms(boxes[:0], scores[:0], 0.5))
    shared.result("iou", ops.box_iou(boxes[:9], boxes[9:20]))
    shared.result("giou", ops.generalized_box_iou_loss(boxes[:9], boxes[9:18], reduction="mean"))
    shared.result("focal", ops.sigmoid_focal_loss(scores, (scores > 0.5).float(), reduction="mean"))
    image = (group[:5] % 2).to(boxes.dtype)
    rois = torch.cat([image[:, None], boxes[:5] - 1.7], 1)
    x = shared.randn("features", 2, 12, 9, 11)
    calls = {
        "align": lambda x: ops.roi_align(x, rois, (3, 2), 0.4, 2, False),
        "align.adaptive": lambda x: ops.roi_align(x, rois, (3, 2), 0.9, -1, True),
        "pool": lambda x: ops.roi_pool(x, rois, (3, 2), 0.5),
        "ps_align": lambda x: ops.ps_roi_align(x, rois, (3, 2), 0.4, 2),
        "ps_pool": lambda x: ops.ps_roi_pool(x, rois, (3, 2), 0.5),
        "none": lambda x: ops.roi_align(x, rois[:0], (3, 2)),
    }
    for name, call in calls.items():
        leaf = x.detach().requires_grad_()
        out = call(leaf)
        shared.result(name, out)
        (out * torch.arange(1, out.numel() + 1, device=out.device).reshape(out.shape)).sum().backward()
        shared.result(f"{name}.grad", leaf.grad)
    layer = shared.weights("deform", ops.DeformConv2d(12, 8, 3, padding=1, stride=2, dilation=1, groups=2))
    given = [
        x.detach().requires_grad_(),
        (shared.randn("offset", 2, 4 * 9, 5, 6) * 1.5).requires_grad_(),
        shared.tensor("mask", lambda: torch.rand(2, 2 * 9, 5, 6)).requires_grad_(),
    ]
    out = layer(*given)
    shared.result("deform", out)
    out.square().sum().backward()
    for i, t in enumerate(given):
        shared.result(f"deform.{i}.grad", t.grad)
    shared.gradients("deform", layer)
    plain = ops.deform_conv2d(given[0], given[1].detach().round(), layer.weight, stride=2, padding=1)
    shared.result("deform.whole", plain)
    fpn = shared.weights("fpn", ops.FeaturePyramidNetwork([12, 12], 8))
    shared.result("fpn", fpn({"a": x, "b": x[:, :, ::2, ::2]})["b"])
    pooler = ops.MultiScaleRoIAlign(["a", "b"], 3, 2)
    shared.result("pooler", pooler({"a": x, "b": x[:, :, ::2, ::2]}, [boxes[:3], boxes[3:5]], [(18, 22)] * 2))


case_ops.on_gpu = True


def _picture(seed: int = 0, size: tuple[int, int] = (40, 32)) -> Any:
    from PIL import Image

    numbers = np.random.default_rng(seed).integers(0, 255, (size[1] // 4, size[0] // 4, 3), dtype=np.uint8)
    return Image.fromarray(numbers.repeat(4, 0).repeat(4, 1))


def case_transforms(shared: Any) -> None:
    from torchvision import transforms as v1
    from torchvision.transforms import functional as f1
    from torchvision.transforms.v2 import functional as f2

    picture = _picture()
    tensor = v1.ToTensor()(picture)
    shared.result("to_tensor", tensor)
    fixed = {
        "resize": v1.Resize((20, 24), antialias=True),
        "crop": v1.CenterCrop(24),
        "normalize": v1.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.3)),
        "gray": v1.Grayscale(3),
        "pad": v1.Pad((1, 2, 3, 4), padding_mode="reflect"),
        "blur": v1.GaussianBlur(5, (1.0, 1.0)),
        "five": v1.Compose([v1.FiveCrop(16), torch.stack]),
    }
    for name, t in fixed.items():
        shared.result(f"v1.{name}", t(tensor))
    for name, out in (
        ("rotate", f1.rotate(tensor, 30.0, interpolation=v1.InterpolationMode.BILINEAR)),
        ("affine", f1.affine(tensor, 10.0, [2, 3], 1.2, [5.0, 0.0])),
        (
            "perspective",
            f1.perspective(tensor, [[0, 0], [39, 0], [39, 31], [0, 31]], [[2, 3], [35, 1], [37, 30], [1, 28]]),
        ),
        ("brightness", f1.adjust_brightness(tensor, 1.3)),
        ("contrast", f1.adjust_contrast(tensor, 0.7)),
        ("saturation", f1.adjust_saturation(tensor, 1.4)),
        ("hue", f1.adjust_hue(tensor, 0.2)),
        ("gamma", f1.adjust_gamma(tensor, 0.8)),
        ("equalize", f1.equalize(f1.pil_to_tensor(picture))),
        ("posterize", f1.posterize(f1.pil_to_tensor(picture), 3)),
        ("solarize", f1.solarize(tensor, 0.5)),
        ("sharpness", f1.adjust_sharpness(tensor, 1.6)),
        ("erase", f1.erase(tensor, 3, 4, 6, 7, torch.zeros(()))),
        ("hflip", f1.hflip(tensor)),
    ):
        shared.result(f"f1.{name}", out)
    boxes = torchvision.tv_tensors.BoundingBoxes(
        torch.tensor([[3, 4, 20, 25], [0, 0, 9, 9]]), format="XYXY", canvas_size=(32, 40)
    )
    mask = torchvision.tv_tensors.Mask((f2.pil_to_tensor(picture)[:1] > 99).to(torch.uint8))
    image = torchvision.tv_tensors.Image(f2.pil_to_tensor(picture))
    pipeline = v2.Compose(
        [
            v2.Resize((48, 60), antialias=True),
            v2.RandomHorizontalFlip(p=1.0),
            v2.CenterCrop((40, 40)),
            v2.ToDtype({torchvision.tv_tensors.Image: torch.float32, "others": None}, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
            v2.SanitizeBoundingBoxes(labels_getter=None),
        ]
    )
    out = pipeline({"image": image, "boxes": boxes, "mask": mask, "name": "a"})
    for key in ("image", "boxes", "mask"):
        shared.result(f"v2.{key}", out[key].as_subclass(torch.Tensor))
    shared.result("v2.types", [type(out[k]).__name__ for k in ("image", "boxes", "mask", "name")])
    shared.result("v2.format", f2.convert_bounding_box_format(boxes, new_format="CXCYWH").as_subclass(torch.Tensor))
    shared.result("v2.rotate", f2.rotate(boxes, 45.0, expand=True).as_subclass(torch.Tensor))
    torch.manual_seed(1)
    for t in (
        v2.RandAugment(),
        v2.AugMix(),
        v2.TrivialAugmentWide(),
        v2.RandomResizedCrop(16),
        v2.ColorJitter(0.3, 0.3),
    ):
        shared.result(f"v2.{type(t).__name__}", list(t(image).shape))
    cut = v2.MixUp(num_classes=4)(torch.stack([tensor, tensor]), torch.tensor([0, 3]))
    shared.result("v2.mixup", [len(c) for c in cut])


def case_data_and_files(shared: Any) -> None:
    from torch.utils.data import DataLoader
    from torchvision import datasets, io, transforms, utils

    for split in ("a", "b"):
        (shared.folder / "pictures" / split).mkdir(parents=True, exist_ok=True)
        for i in range(3):
            _picture(i).save(shared.folder / "pictures" / split / f"{i}.png")
    data = datasets.ImageFolder(str(shared.folder / "pictures"), transforms.ToTensor())
    x, y = next(iter(DataLoader(data, batch_size=4)))
    shared.result("folder", x)
    shared.result("labels", y)
    fake = datasets.FakeData(4, (3, 8, 8), 3, transforms.ToTensor())
    shared.result("fake", [list(fake[0][0].shape), [len(fake)] * 3])
    shared.result("grid", utils.make_grid(x, nrow=2, normalize=True))
    path = str(shared.folder / "pictures" / "a" / "1.png")
    shared.result("png", io.read_image(path))
    shared.result("png.gray", io.decode_image(io.read_file(path), io.ImageReadMode.GRAY))
    image = io.read_image(path)
    shared.result("again", io.decode_png(io.encode_png(image)))
    jpeg = io.encode_jpeg(image, quality=90)
    shared.result("jpeg", [int((io.decode_jpeg(jpeg).float() - image.float()).abs().mean() < 12), jpeg.dim()])
    io.write_png(image, str(shared.folder / "w.png"))
    shared.result("written", io.read_image(str(shared.folder / "w.png")))
    drawn = utils.draw_bounding_boxes(image, torch.tensor([[2, 2, 20, 20]]), colors="red")
    shared.result("drawn", drawn)
    utils.save_image(x, shared.folder / "grid.png")
    shared.result("saved", io.read_image(str(shared.folder / "grid.png")))
    broken = torch.zeros(20, dtype=torch.uint8)
    try:
        io.decode_png(broken)
    except RuntimeError:
        shared.result("broken", "RuntimeError")
