"""`SummaryWriter`: data of a training run for TensorBoard, one method for each kind."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from lucid import errors
from lucid._C import Tensor
from lucid.utils.tensorboard import _images, _proto, summary
from lucid.utils.tensorboard._event_file import FileWriter

__all__ = ["FileWriter", "SummaryWriter"]


class SummaryWriter:
    """Writes data of a run to event files, as `torch.utils.tensorboard.SummaryWriter`.

    Methods take tensors of any device and dtype, arrays and numbers. Every one takes `global_step` and `walltime`
    (seconds since the epoch, by default now).

    Differences from PyTorch: neither `tensorboard` nor `protobuf` need be installed; videos are made by Pillow; graphs
    have Lucid's ops; `add_onnx_graph` takes a GraphDef.

    Args:
        log_dir (str | os.PathLike[str], optional): the folder; by default `runs/DATE_HOST` and the comment.
        comment (str, default: ""): the end of the default folder's name.
        purge_step (int, optional): TensorBoard hides what an earlier, crashed run wrote at this step and after it.
        max_queue (int, default: 10): how many events wait for the writing thread before a call waits for it.
        flush_secs (float, default: 120): how often, in seconds, what was written reaches the file.
        filename_suffix (str, default: ""): the end of the files' names.

    Raises:
        OSError: the folder or the file cannot be made.

    Example:
        >>> import tempfile
        >>> from lucid.utils.tensorboard import SummaryWriter
        >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        ...     for step in range(3):
        ...         writer.add_scalar("loss", lucid.tensor(1.0) / (step + 1), step)
        ...     writer.add_histogram("weights", lucid.randn(100), 0)
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step, self.max_queue, self.flush_secs = purge_step, max_queue, flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._projector: list[str] = []
        self._get_file_writer()

    def _new(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder, made anew after `close`."""
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = self._new(self.log_dir)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                now = time.time()
                self.file_writer.add_event(_proto.event(now, self.purge_step, field=3, content="brain.Event:2"))
                log = _proto.integer(1, 1)
                self.file_writer.add_event(_proto.event(now, self.purge_step, field=7, content=log))
                self.purge_step = None
        return self.file_writer

    def _add(self, made: bytes, global_step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(made, global_step, walltime)

    def get_logdir(self) -> str:
        """Returns the folder of the event files."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a number.

        Args:
            tag: the name of the data.
            scalar_value: one element.
            global_step, walltime: see the class.
            new_style: whether to write it as a tensor, of float64 with `double_precision`.

        Raises:
            AssertionError: there is not exactly one element.
        """
        self._add(summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds numbers that are shown in one chart; each has an event file in a folder of its own.

        Args:
            main_tag: the name of the chart.
            tag_scalar_dict: one element for each name.
            global_step, walltime: see the class.
        """
        walltime = time.time() if walltime is None else walltime
        folder = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, scalar_value in tag_scalar_dict.items():
            name = f"{folder}/{main_tag.replace('/', '_')}_{tag}"
            if name not in self.all_writers:
                self.all_writers[name] = self._new(name)
            self.all_writers[name].add_summary(summary.scalar(main_tag, scalar_value), global_step, walltime)

    def add_tensor(
        self, tag: str, tensor: Tensor, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Adds a whole tensor.

        Args:
            tag: the name of the data.
            tensor: below 2 GiB.
            global_step, walltime: see the class.

        Raises:
            ValueError: it is too large.
        """
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds a histogram of all elements.

        Args:
            tag: the name of the data.
            values: at least one number; any shape.
            global_step, walltime: see the class.
            bins: `"tensorflow"` for limits that grow by a tenth, or what `numpy.histogram` takes: a number, limits, or
                a rule such as `"auto"`.
            max_bins: bins are joined until there are about this many.

        Raises:
            ValueError: there is no element, or one is not finite.
        """
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a histogram that the caller has counted.

        Args:
            tag: the name of the data.
            min, max, num, sum, sum_squares: of the values.
            bucket_limits: the upper end of each bin.
            bucket_counts: how many values are in it.
            global_step, walltime: see the class.

        Raises:
            ValueError: the numbers of limits and counts differ.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise errors.ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(made, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds an image.

        Args:
            tag: the name of the data.
            img_tensor: uint8 between 0 and 255, or floats between 0 and 1; what is beyond is clipped.
            global_step, walltime: see the class.
            dataformats: the order of the dimensions: `CHW`, `HWC`, `HW`, `WH`, …

        Raises:
            AssertionError: `dataformats` does not fit the shape.
        """
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds a grid of images, eight in a row; the arguments are those of `add_image`, `dataformats` as `NHWC`, …"""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: str | Sequence[str] | None = None,
    ) -> None:
        """Adds an image with boxes drawn on it; needs Pillow.

        Args:
            tag, img_tensor, global_step, walltime, dataformats: see `add_image`.
            box_tensor: of shape (N, 4): `x_min, y_min, x_max, y_max` in pixels.
            rescale: the size of the written image over that of the given one.
            labels: a text for each box; left out where the number differs from N.
        """
        given = [labels] if isinstance(labels, str) else labels
        if given is not None and len(given) != box_tensor.shape[0]:
            given = None
        made = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, given)
        self._add(made, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Adds a figure of matplotlib as an image.

        Args:
            tag: the name of the data.
            figure: a figure, or a list of figures of one size.
            global_step, walltime: see the class.
            close: whether to close the figures.
        """
        import numpy as np
        from matplotlib import pyplot
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        pictures = []
        for one in figure if isinstance(figure, list) else [figure]:
            canvas: Any = FigureCanvasAgg(one)
            canvas.draw()
            pictures.append(np.asarray(canvas.buffer_rgba())[:, :, :3].copy())
            if close:
                pyplot.close(one)
        if isinstance(figure, list):
            return self.add_images(tag, np.stack(pictures), global_step, walltime, "NHWC")
        return self.add_image(tag, pictures[0], global_step, walltime, "HWC")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Adds a video; needs Pillow.

        Args:
            tag: the name of the data.
            vid_tensor: of shape (N, T, C, H, W), uint8 or floats between 0 and 1; the N clips are in a grid.
            global_step, walltime: see the class.
            fps: frames a second.
        """
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Adds sound.

        Args:
            tag: the name of the data.
            snd_tensor: of shape (L,) or (1, L), between -1 and 1.
            global_step, walltime: see the class.
            sample_rate: samples a second.

        Raises:
            AssertionError: there is more than one channel.
        """
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Adds a text, which TensorBoard shows as Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Adds a graph that another package has made of an ONNX file, as a protocol buffer `GraphDef`.

        Raises:
            TypeError: it is no protocol buffer; Lucid does not read ONNX files.
        """
        if not hasattr(prototxt, "SerializeToString"):
            raise errors.TypeError("add_onnx_graph: expected a GraphDef; Lucid does not read ONNX files")
        self._get_file_writer().add_onnx_graph(prototxt)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Adds the graph of a call of a module: its ops, in the scopes of the modules that call them.

        Args:
            model: the module; it is called once, without gradients.
            input_to_model: the argument, or a tuple or list of arguments.
            verbose: whether to print the names of the nodes.
            use_strict_trace: modules may give dicts and lists in any case.

        Raises:
            TypeError: `model` is no module, or there is no input.
        """
        from lucid.utils.tensorboard._graph import graph

        self._get_file_writer().add_graph(graph(model, input_to_model, verbose))

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Adds points for the projector, in files beside the event files.

        Args:
            mat: of shape (N, D).
            metadata: N labels; with `metadata_header` N rows of labels.
            label_img: of shape (N, C, H, W), an image for each point, C 1 or 3.
            global_step: the step, part of the folder's name.
            tag: the name of the data.
            metadata_header: the names of the columns of `metadata`.

        Raises:
            AssertionError: `mat` is not 2-D, or the numbers of points, labels and images differ.
        """
        array = summary.make_np(mat)
        if array.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        if metadata is not None and len(metadata) != len(array):
            raise AssertionError("#labels should equal with #data points")
        if label_img is not None and len(label_img) != len(array):
            raise AssertionError("#images should equal with #data points")
        step = str(global_step or 0).zfill(5)
        sub = f"{step}/" + tag.replace("%", "%25").replace("/", "%2f").replace("\\", "%5c")
        folder = os.path.join(self._get_file_writer().get_logdir(), sub)
        os.makedirs(folder, exist_ok=True)
        info = [f'  tensor_name: "{tag}:{step}"', f'  tensor_path: "{sub}/tensors.tsv"']
        if metadata is not None:
            rows = [str(x) for x in metadata]
            if metadata_header:
                if len(metadata_header) != len(metadata[0]):
                    raise AssertionError("len of header must be equal to the number of columns in metadata")
                rows = ["\t".join(str(x) for x in row) for row in (metadata_header, *metadata)]
            _write(os.path.join(folder, "metadata.tsv"), "".join(f"{row}\n" for row in rows).encode())
            info.append(f'  metadata_path: "{sub}/metadata.tsv"')
        if label_img is not None:
            import numpy as np

            images = summary.make_np(label_img)
            if images.dtype != np.uint8:
                images = (images * 255).clip(0, 255).astype(np.uint8)
            sheet = summary.grid(images, math.ceil(len(images) ** 0.5)).transpose(1, 2, 0)
            # The projector wants a square of images.
            square = np.zeros((max(sheet.shape[:2]), sheet.shape[1], 3), np.uint8)
            square[: len(sheet)] = sheet
            _write(os.path.join(folder, "sprite.png"), _images._png(square))
            height, width = images.shape[2:]
            dims = f"    single_image_dim: {width}\n    single_image_dim: {height}"
            info.append(f'  sprite {{\n    image_path: "{sub}/sprite.png"\n{dims}\n  }}')
        lines = ("\t".join(str(v) for v in row) for row in array.tolist())
        _write(os.path.join(folder, "tensors.tsv"), "".join(f"{line}\n" for line in lines).encode())
        self._projector.append("embeddings {\n" + "\n".join(info) + "\n}\n")
        page = os.path.join(self._get_file_writer().get_logdir(), "projector_config.pbtxt")
        _write(page, "".join(self._projector).encode())

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve.

        Args:
            tag: the name of the data.
            labels: 0 or 1 for each element; any shape.
            predictions: between 0 and 1, of the same shape.
            global_step, walltime: see the class.
            num_thresholds: the number of points, at most 127.
            weights: for each element, or `None`.

        Raises:
            ValueError: the numbers of labels and predictions differ.
        """
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a precision-recall curve that the caller has computed, each array of shape (thresholds,).

        Raises:
            ValueError: `weights` is given; the counts have them in them.
        """
        if weights is not None:
            raise errors.ValueError("add_pr_curve_raw: weights belong into the counts; leave them out")
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        made = summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds)
        self._add(made, global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Lays out one chart of several scalars."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Lays out one chart of a value between a lower and an upper one."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Lays out charts: `{category: {title: ["Multiline", tags] or ["Margin", [value, lower, upper]]}}`."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Adds meshes or point clouds.

        Args:
            tag: the name of the data.
            vertices: of shape (N, points, 3).
            colors: of shape (N, points, 3), between 0 and 255.
            faces: of shape (N, triangles, 3), indices of vertices.
            config_dict: of ThreeJS's classes.
            global_step, walltime: see the class.
        """
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Adds hyperparameters and what they led to, in a folder of its own.

        Args:
            hparam_dict: by name numbers, bools, strings, or tensors of one element.
            metric_dict: by name one element.
            hparam_domain_discrete: the values that a hyperparameter may have.
            run_name: the name of the folder; by default the time.
            global_step: the step of the metrics.

        Raises:
            TypeError: an argument is no dict, or a domain no list of values of the hyperparameter's type.
        """
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise errors.TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for part in made:
                writer._add(part, global_step, None)
            for tag, scalar_value in metric_dict.items():
                writer.add_scalar(tag, scalar_value, global_step)

    def flush(self) -> None:
        """Waits until all that was added is in the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what was added and closes the files; a later call of a method opens others."""
        for writer in (self.all_writers or {}).values():
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
