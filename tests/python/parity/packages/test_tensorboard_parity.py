"""Event files against PyTorch's, read back by the `tensorboard` package; and `tensorboardX` on Lucid's tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch
import torch.utils.tensorboard as theirs
from lucid.utils import tensorboard as ours
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.plugins.hparams import plugin_data_pb2

DEVICES = ["cpu", "gpu"]


def events(folder: Path) -> list[Any]:
    """The events of all files below a folder, the files in the order of their folders."""
    found = []
    for path in sorted(folder.rglob("events.out.tfevents.*"), key=lambda p: str(p.parent)):
        # The raw loader checks both checksums of each record, and gives what was written.
        found += list(event_file_loader.RawEventFileLoader(str(path)).Load())
    parsed = []
    for raw in found:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event.FromString(raw)
        event.ClearField("wall_time")
        event.ClearField("source_metadata")
        parsed.append(event)
    return parsed


def data(*shape: int) -> Any:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def unit(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape).astype(np.float32)


#: What is written: a method, and its arguments made of `t`, which makes a tensor of an array.
CALLS: dict[str, Any] = {
    "scalar": lambda w, t: w.add_scalar("a/b", t(data()), 3),
    "scalar of shape 1": lambda w, t: w.add_scalar("a", t(data(1, 1)), 3),
    "scalar of a number": lambda w, t: w.add_scalar("a", 0.25),
    "scalar, new style": lambda w, t: w.add_scalar("a", t(data()), 1, new_style=True),
    "scalar, double": lambda w, t: w.add_scalar("a", 0.1, -1, new_style=True, double_precision=True),
    "scalars": lambda w, t: w.add_scalars("run/x", {"a": t(data()), "b": 2.5}, 4),
    "histogram": lambda w, t: w.add_histogram("h", t(data(50, 3)), 1),
    "histogram of zeros": lambda w, t: w.add_histogram("h", t(data(5) * 0), 1),
    "histogram of one value": lambda w, t: w.add_histogram("h", t(data(1)), 1),
    "histogram, auto": lambda w, t: w.add_histogram("h", t(data(100)), 1, bins="auto"),
    "histogram, 20 bins": lambda w, t: w.add_histogram("h", t(data(100)), 1, bins=20),
    "histogram, at most 7 bins": lambda w, t: w.add_histogram("h", t(data(100)), 1, bins=30, max_bins=7),
    "histogram, joined with a rest": lambda w, t: w.add_histogram("h", t(data(100)), 1, bins=31, max_bins=7),
    "histogram of integers": lambda w, t: w.add_histogram("h", t(np.arange(9)), 1),
    "raw histogram": lambda w, t: w.add_histogram_raw("h", 0.0, 3.0, 4, 5.0, 6.0, [1.0, 2.0, 3.0], [1, 2, 1], 1),
    "text": lambda w, t: w.add_text("t", "some *text* — ü", 2),
    "pr curve": lambda w, t: w.add_pr_curve("p", t((unit(60) > 0.5).astype(np.int64)), t(unit(60)), 1),
    "pr curve of 9": lambda w, t: w.add_pr_curve("p", t((unit(60) > 0.5).astype(np.int64)), t(unit(60)), 1, 9),
    "pr curve with weights": lambda w, t: w.add_pr_curve("p", t(unit(9) > 0.5), t(unit(9)), weights=unit(9)),
    "raw pr curve": lambda w, t: w.add_pr_curve_raw("p", *(unit(6, 5)), 1, 5),
    "multiline": lambda w, t: w.add_custom_scalars_multilinechart(["a", "b"], "c", "d"),
    "margin": lambda w, t: w.add_custom_scalars_marginchart(["a", "b", "c"]),
    "layout": lambda w, t: w.add_custom_scalars({"x": {"y": ["Multiline", ["a"]], "z": ["Margin", ["a", "b", "c"]]}}),
    "mesh": lambda w, t: w.add_mesh("m", t(data(1, 4, 3)), t(unit(1, 4, 3)), t(np.ones((1, 2, 3), np.int32)), {"a": 1}),
    "points": lambda w, t: w.add_mesh("m", t(data(2, 4, 3)), global_step=1),
    "hparams": lambda w, t: w.add_hparams(
        {"lr": 0.1, "n": 3, "b": True, "o": "adam", "none": None}, {"loss": 0.5}, {"o": ["adam", "sgd"]}, "run", 7
    ),
    "audio": lambda w, t: w.add_audio("s", t(data(1, 200).clip(-1, 1)), 1, 8000),
    **{
        f"tensor of {dtype}": lambda w, t, dtype=dtype: w.add_tensor("x", t(data(2, 3).astype(dtype)), 1)
        for dtype in ("float16", "float32", "int8", "int16", "int32", "int64", "bool", "complex64", "uint8")
    },
    "empty tensor": lambda w, t: w.add_tensor("x", t(data(0, 3)), 1),
}


def both(tmp_path: Path, call: Any, device: str) -> tuple[list[Any], list[Any]]:
    with theirs.SummaryWriter(str(tmp_path / "a")) as w:
        call(w, torch.tensor)
    with ours.SummaryWriter(tmp_path / "b") as w:
        call(w, lambda x: lucid.tensor(x, device=device))
    return events(tmp_path / "a"), events(tmp_path / "b")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_events_are_pytorchs(name: str, device: str, tmp_path: Path) -> None:
    there, here = both(tmp_path, CALLS[name], device)
    assert len(there) == len(here) > 1
    for a, b in zip(there, here, strict=True):
        if "_hparams_" in str(a):
            # Messages in a map have no order.
            for x, y in zip(a.summary.value, b.summary.value, strict=True):
                read = plugin_data_pb2.HParamsPluginData.FromString
                assert read(x.metadata.plugin_data.content) == read(y.metadata.plugin_data.content)
                x.metadata.plugin_data.content = y.metadata.plugin_data.content = b""
        assert a == b


IMAGES: dict[str, Any] = {
    "CHW": lambda w, t: w.add_image("i", t(unit(3, 5, 6)), 1),
    "grey": lambda w, t: w.add_image("i", t(unit(1, 5, 6)), 1),
    "HWC of bytes": lambda w, t: w.add_image("i", t((unit(5, 6, 3) * 255).astype(np.uint8)), dataformats="HWC"),
    "HW": lambda w, t: w.add_image("i", t(unit(5, 6)), 1, dataformats="HW"),
    "beyond 1": lambda w, t: w.add_image("i", t(data(3, 5, 6)), 1),
    "with alpha": lambda w, t: w.add_image("i", t(unit(4, 5, 6)), 1),
    "NCHW": lambda w, t: w.add_images("i", t(unit(10, 3, 5, 6)), 1),
    "NHWC, grey": lambda w, t: w.add_images("i", t(unit(3, 5, 6, 1)), 1, dataformats="NHWC"),
    "boxes": lambda w, t: w.add_image_with_boxes("i", t(unit(3, 20, 30)), t(np.array([[2, 3, 12, 13], [5, 5, 9, 9]]))),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", IMAGES)
def test_images_are_pytorchs(name: str, device: str, tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image

    seen = []
    for found in both(tmp_path, IMAGES[name], device):
        (value,) = found[-1].summary.value
        picture = Image.open(BytesIO(value.image.encoded_image_string))
        size = (value.image.height, value.image.width, value.image.colorspace)
        seen.append((value.tag, size, picture.mode, np.asarray(picture).tolist()))
    assert seen[0] == seen[1]


def test_figures(tmp_path: Path) -> None:
    from matplotlib import pyplot

    def draw(w: Any, t: Any) -> None:
        figures = []
        for i in range(3):
            figure, axes = pyplot.subplots(figsize=(1, 1))
            axes.plot([0, i])
            figures.append(figure)
        w.add_figure("one", figures[0], 1)
        w.add_figure("two", figures[1:], 2, close=False)
        assert pyplot.get_fignums() == [f.number for f in figures[1:]]
        pyplot.close("all")

    there, here = both(tmp_path, draw, "cpu")
    for a, b in zip(there[1:], here[1:], strict=True):
        one, two = a.summary.value[0], b.summary.value[0]
        assert (one.tag, one.image.height, one.image.width) == (two.tag, two.image.height, two.image.width)


def test_videos(tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image

    with ours.SummaryWriter(tmp_path) as w:
        w.add_video("v", lucid.rand(3, 5, 3, 4, 6), 1, fps=10)
    (value,) = events(tmp_path)[-1].summary.value
    picture = Image.open(BytesIO(value.image.encoded_image_string))
    assert (picture.format, picture.n_frames, picture.info["duration"]) == ("GIF", 5, 100)
    assert (picture.height, picture.width) == (value.image.height, value.image.width) == (4, 24)


def test_embeddings(tmp_path: Path) -> None:
    from google.protobuf import text_format
    from PIL import Image
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    points, images = np.array([[0.5, -2.0], [1.0, 3.25], [4.0, 8.0]], np.float32), unit(3, 3, 4, 5)
    configs = []
    for name, module, t in (("a", theirs, torch.tensor), ("b", ours, lucid.tensor)):
        with module.SummaryWriter(str(tmp_path / name)) as w:
            w.add_embedding(t(points), ["x", "y", "z"], t(images), 2, "a/b%")
            w.add_embedding(t(points), [["x", 1], ["y", 2], ["z", 3]], metadata_header=["k", "n"])
        config = text_format.Parse((tmp_path / name / "projector_config.pbtxt").read_text(), ProjectorConfig())
        configs.append(config)
        for info in config.embeddings:
            assert (tmp_path / name / info.tensor_path).exists()
    assert configs[0] == configs[1]
    for info in configs[0].embeddings:
        for path in (info.tensor_path, info.metadata_path):
            assert (tmp_path / "a" / path).read_text() == (tmp_path / "b" / path).read_text()
    sprites = [Image.open(tmp_path / n / configs[0].embeddings[0].sprite.image_path) for n in "ab"]
    assert np.asarray(sprites[0]).tolist() == np.asarray(sprites[1]).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_graphs(device: str, tmp_path: Path) -> None:
    nn = lucid.nn
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))).to(device)
    with ours.SummaryWriter(tmp_path) as w:
        w.add_graph(model, lucid.ones(2, 3, device=device))
        with pytest.raises(TypeError, match="expected a module"):
            w.add_graph(len, lucid.ones(2))
        with pytest.raises(TypeError, match="input_to_model"):
            w.add_graph(model)
    read = event_accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    nodes = {node.name: node for node in read.Graph().node}
    linear = nodes["Sequential/Sequential[2]/Linear[0]/linear"]
    assert list(linear.input) == [
        "Sequential/ReLU[1]/relu",
        "Sequential/Sequential[2]/Linear[0]/weight",
        "Sequential/Sequential[2]/Linear[0]/bias",
    ]
    assert [d.size for d in linear.attr["_output_shapes"].list.shape[0].dim] == [2, 2]
    assert list(nodes["output/y"].input) == [linear.name]
    assert not model._forward_hooks


def test_accumulators_read_them(tmp_path: Path) -> None:
    with ours.SummaryWriter(tmp_path, purge_step=2, filename_suffix=".end") as w:
        assert w.get_logdir() == str(tmp_path)
        for step in range(500):
            w.add_scalar("loss", 1.0 / (step + 1), step, walltime=1000.0 + step)
        w.add_histogram("h", lucid.randn(1000, dtype=lucid.bfloat16), 1)
        w.add_histogram("list", [1.0, lucid.ones(()), -3.0], 1)
        w.add_text("words", "a word")
    assert all(p.name.endswith(".end") for p in tmp_path.iterdir())
    read = event_accumulator.EventAccumulator(str(tmp_path), {event_accumulator.SCALARS: 0, "tensors": 0})
    read.Reload()
    assert [e.value for e in read.Scalars("loss")][:2] == [1.0, 0.5]
    assert [e.wall_time for e in read.Scalars("loss")] == [1000.0 + i for i in range(500)]
    assert read.Tensors("words/text_summary")[0].tensor_proto.string_val[0] == b"a word"
    (histogram,) = read.Histograms("h")
    assert histogram.histogram_value.num == 1000
    assert read.Histograms("list")[0].histogram_value.sum == -1


def test_purging_is_pytorchs(tmp_path: Path) -> None:
    for name, module in (("a", theirs), ("b", ours)):
        with module.SummaryWriter(str(tmp_path / name), purge_step=9) as w:
            w.add_scalar("a", 1, 9)
    assert events(tmp_path / "a") == events(tmp_path / "b")


def test_files_can_be_closed_and_written_again(tmp_path: Path) -> None:
    w = ours.SummaryWriter(tmp_path)
    w.add_scalar("a", 1, 1)
    w.flush()
    assert len(events(tmp_path)) == 2
    w.close()
    w.close()
    w.add_scalar("a", 2, 2)
    w.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert sorted(e.step for e in events(tmp_path) if e.HasField("summary")) == [1, 2]
    file = ours.FileWriter(tmp_path / "other")
    file.close()
    with pytest.raises(RuntimeError, match="closed"):
        file.add_summary(b"")
    file.reopen()
    file.close()


def test_what_is_not_flushed_is_written_when_the_process_ends(tmp_path: Path) -> None:
    code = f"""
import sys, lucid
from lucid.utils.tensorboard import SummaryWriter
w = SummaryWriter({str(tmp_path)!r})
w.add_scalar("a", lucid.ones(()), 1)
print("tensorboard" in sys.modules, "google.protobuf" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("False False\n", 0), done.stderr
    assert [v.simple_value for e in events(tmp_path) for v in e.summary.value] == [1.0]


BAD: dict[str, Any] = {
    "two elements": lambda w, t: w.add_scalar("a", t(data(2))),
    "no number": lambda w, t: w.add_scalar("a", object()),
    "no elements": lambda w, t: w.add_histogram("a", t(data(0))),
    "not finite": lambda w, t: w.add_histogram("a", t(np.array([np.nan, 1.0])), bins=5),
    "lengths": lambda w, t: w.add_histogram_raw("a", 0, 1, 1, 1, 1, [1.0], [1, 2]),
    "dimensions": lambda w, t: w.add_image("a", t(data(3, 4))),
    "twice": lambda w, t: w.add_image("a", t(data(3, 4, 5)), dataformats="CCW"),
    "two tags": lambda w, t: w.add_custom_scalars_marginchart(["a", "b"]),
    "labels": lambda w, t: w.add_embedding(t(data(2, 3)), ["a"]),
    "images": lambda w, t: w.add_embedding(t(data(2, 3)), label_img=t(data(1, 3, 2, 2))),
    "points": lambda w, t: w.add_embedding(t(data(2, 3, 4))),
    "hparams": lambda w, t: w.add_hparams([], {}),
    "hparam": lambda w, t: w.add_hparams({"a": object()}, {}),
    "domain": lambda w, t: w.add_hparams({"a": 1}, {}, {"a": ["b"]}),
    "audio": lambda w, t: w.add_audio("a", t(data(2, 5) / 9)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str, tmp_path: Path) -> None:
    with theirs.SummaryWriter(str(tmp_path / "a")) as w, pytest.raises(Exception) as there:
        BAD[name](w, torch.tensor)
    with ours.SummaryWriter(tmp_path / "b") as w, pytest.raises(there.type):
        BAD[name](w, lucid.tensor)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        ours.SummaryWriter(tmp_path / "file" / "runs")


@pytest.mark.parametrize(
    "options", [{"flush_secs": "mean"}, {"flush_secs": -1}, {"max_queue": 2.5}, {"purge_step": "a"}]
)
def test_bad_settings(options: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError)):
        ours.SummaryWriter(tmp_path, **options)
    with ours.SummaryWriter(tmp_path) as w, pytest.raises(ValueError, match="sample rate"):
        w.add_audio("a", lucid.zeros(3), sample_rate=0)


@pytest.mark.parametrize("order", ["lucid, tensorboardX", "tensorboardX, lucid"])
def test_tensorboardX_takes_tensors(order: str, tmp_path: Path) -> None:
    code = f"""
import {order}
with tensorboardX.SummaryWriter({str(tmp_path)!r}) as w:
    for device in ("cpu", "gpu"):
        w.add_scalar("loss", lucid.tensor(0.5, device=device, requires_grad=True), 1)
        w.add_histogram("h", lucid.ones(9, device=device, dtype=lucid.bfloat16), 1)
        w.add_image("i", lucid.rand(3, 4, 5, device=device), 1)
        w.add_scalars("s", {{"a": lucid.ones(1, device=device)}}, 1)
        w.add_embedding(lucid.rand(4, 2, device=device), global_step=device == "gpu")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    read = event_accumulator.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [e.value for e in read.Scalars("loss")] == [0.5, 0.5]
