"""Summaries of images and videos."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import errors
from lucid._C import Tensor
from lucid.utils.tensorboard._proto import data, integer, value


def make_np(x: Any) -> Any:
    """Turns a value into a NumPy array: a tensor (bfloat16 as float32), a number, a sequence, an array.

    Args:
        x (object): a tensor of any shape, a number, a sequence or an array.

    Returns:
        numpy.ndarray: the elements.

    Raises:
        NotImplementedError: another kind of value.

    Example:
        >>> lucid.utils.tensorboard.summary.make_np(lucid.ones(2)).tolist()
        [1.0, 1.0]
    """
    import numpy as np

    if isinstance(x, Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype is lucid.bfloat16 else x).numpy()
    if isinstance(x, (list, tuple)) and any(isinstance(v, Tensor) for v in x):
        x = [make_np(v) for v in x]
    made = np.asarray(x)
    if made.dtype.kind not in "biufc":
        raise errors.NotImplementedError(f"expected a tensor, an array or a number, got {type(x).__name__}")
    return made


def _png(pixels: Any) -> bytes:
    """A PNG file of an array of uint8 of shape (height, width, 1 to 4 channels)."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")


def grid(images: Any, columns: int = 8) -> Any:
    """Images of shape (N, 1 or 3, H, W) side by side: (3, rows H, columns W)."""
    import numpy as np

    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise AssertionError(f"expected images of shape (N, 1 or 3, H, W), got {list(images.shape)}")
    images = np.repeat(images, 3, 1) if images.shape[1] == 1 else images
    n, _, height, width = images.shape
    columns = min(n, columns)
    rows = -(-n // columns) if n else 0
    canvas = np.zeros((3, height * rows, width * columns), images.dtype)
    for i in range(n):
        y, x = divmod(i, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = images[i]
    return canvas


def _pixels(tensor: Any, dataformats: str) -> Any:
    """An array of uint8 of shape (H, W, C); a grid of several images."""
    import numpy as np

    array = make_np(tensor)
    formats = dataformats.upper()
    if len(set(formats)) != len(formats):
        raise AssertionError(f"a dimension is named twice in dataformats {dataformats!r}")
    if array.ndim != len(formats):
        raise AssertionError(f"the image has shape {list(array.shape)}, dataformats is {dataformats!r}")
    order = {4: "NCHW", 3: "HWC", 2: "HW"}.get(len(formats), "")
    if set(order) != set(formats):
        raise AssertionError(f"dataformats {dataformats!r} is none of the orders of NCHW, CHW and HW")
    # Floats are between 0 and 1, whatever their dtype; only uint8 is between 0 and 255.
    scale = 1 if array.dtype == np.uint8 else 255
    array = array.transpose([formats.index(c) for c in order])
    if len(formats) == 4:
        array = grid(array).transpose(1, 2, 0)
    elif len(formats) == 2:
        array = np.stack([array] * 3, 2)
    elif array.shape[2] == 1:
        array = np.repeat(array, 3, 2)
    return (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def _image(tag: str, height: int, width: int, channels: int, encoded: bytes) -> bytes:
    return value(tag, data(4, integer(1, height) + integer(2, width) + integer(3, channels) + data(4, encoded)))


def image(tag: str, tensor: Any, dataformats: str = "NCHW") -> bytes:
    """Makes the summary of an image, or of a grid of several.

    Args:
        tag (str): the name of the data.
        tensor (Tensor or array): pixels, of a shape that `dataformats` spells, such as (3, H, W) for "CHW": uint8 from
            0 to 255, or floats from 0 to 1.
        dataformats (str, optional): a letter per dimension: N images, C channels, H rows, W columns. Default: "NCHW".

    Returns:
        bytes: the summary, serialized, with the image as PNG.

    Raises:
        AssertionError: `dataformats` does not fit the shape, or an image does not have 1 to 4 channels.

    Example:
        >>> summary = lucid.utils.tensorboard.summary.image("sample", lucid.rand(3, 4, 4), dataformats="CHW")
        >>> b"PNG" in summary
        True
    """
    pixels = _pixels(tensor, dataformats)
    if not 1 <= pixels.shape[2] <= 4:
        raise AssertionError(f"expected an image of 1 to 4 channels, got {pixels.shape[2]}")
    height, width, channels = pixels.shape
    return _image(tag, height, width, channels, _png(pixels))


def image_boxes(
    tag: str, image: Any, boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Sequence[str] | None = None
) -> bytes:
    """Makes the summary of an image with boxes drawn in red. Needs Pillow.

    Args:
        tag (str): the name of the data.
        image (Tensor or array): pixels, of a shape that `dataformats` spells, such as (3, H, W).
        boxes (Tensor or array): corners `x_min, y_min, x_max, y_max` in pixels, of shape (N, 4).
        rescale (float, optional): what the sizes are multiplied by. Default: 1.
        dataformats (str, optional): a letter per dimension of `image`. Default: "CHW".
        labels (sequence of str, optional): a text for each box. Default: none.

    Returns:
        bytes: the summary, serialized, with the image as PNG.

    Raises:
        ImportError: Pillow is not installed.

    Example:
        >>> import importlib.util
        >>> if importlib.util.find_spec("PIL"):
        ...     boxes = lucid.tensor([[1, 1, 5, 5]])
        ...     summary = lucid.utils.tensorboard.summary.image_boxes("found", lucid.rand(3, 8, 8), boxes)
        ...     assert b"PNG" in summary
    """
    from PIL import Image, ImageDraw

    pixels = _pixels(image, dataformats)
    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    for i, (left, top, right, bottom) in enumerate(make_np(boxes).tolist()):
        draw.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], fill="Red", width=2)
        if labels is not None:
            box = draw.textbbox((left, bottom), labels[i], anchor="lb")
            draw.rectangle(box, fill="Red")
            draw.text((left, bottom), labels[i], fill="black", anchor="lb")
    height, width, channels = pixels.shape
    picture = picture.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, "PNG")
    return _image(tag, height, width, channels, out.getvalue())


def video(tag: str, tensor: Any, fps: float = 4) -> bytes:
    """Makes the summary of a video, as an animated GIF. Needs Pillow.

    Args:
        tag (str): the name of the data.
        tensor (Tensor or array): pixels of shape (N, T, C, H, W), N clips that are shown in a grid, of T frames: uint8
            from 0 to 255, or floats from 0 to 1.
        fps (float, optional): frames per second. Default: 4.

    Returns:
        bytes: the summary, serialized.

    Raises:
        AssertionError: the shape does not have five dimensions.
        ValueError: there are no frames.
        ImportError: Pillow is not installed.

    Example:
        >>> import importlib.util
        >>> if importlib.util.find_spec("PIL"):
        ...     summary = lucid.utils.tensorboard.summary.video("clip", lucid.rand(1, 2, 3, 4, 4))
        ...     assert b"GIF" in summary
    """
    import numpy as np
    from PIL import Image

    array = make_np(tensor)
    if array.ndim != 5:
        raise AssertionError(f"expected a video of shape (N, T, C, H, W), got {list(array.shape)}")
    scale = 1 if array.dtype == np.uint8 else 255
    array = (array.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    # As many clips as a power of 2, black ones after the others.
    more = (1 << (len(array) - 1).bit_length()) - len(array) if len(array) else 0
    columns = (len(array) + more) >> (len(array).bit_length() - 1) // 2 if len(array) else 0
    array = np.concatenate([array, np.zeros((more, *array.shape[1:]), np.uint8)])
    frames = [Image.fromarray(grid(array[:, t], columns).transpose(1, 2, 0)) for t in range(array.shape[1])]
    if not frames:
        raise errors.ValueError("add_video: the video has no frames")
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)
    return _image(tag, frames[0].height, frames[0].width, 3, out.getvalue())
