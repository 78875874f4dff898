"""Image files in and out, through Pillow: the ops `image::…` of torchvision."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor, errors

# Pillow's modes by torchvision's: gray, gray with alpha, RGB, RGB with alpha; 0 leaves the file's.
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _pillow(op: str) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"image::{op} reads and writes images with Pillow; install it (pip install pillow)") from None
    return Image


def _vector(data: bytes | bytearray) -> Tensor:
    if not data:
        return lucid.empty(0, dtype=lucid.uint8)
    return lucid.frombuffer(bytearray(data), dtype=lucid.uint8)


def _raw(data: Tensor) -> bytes:
    """What is in a uint8 vector."""
    held = bytearray(data.numel())
    lucid.frombuffer(held, dtype=lucid.uint8).copy_(data)
    return bytes(held)


def _bytes(op: str, data: Tensor) -> bytes:
    if data.dtype != lucid.uint8 or data.dim() != 1 or not data.numel():
        raise errors.RuntimeError(
            f"{op}: expected a non-empty uint8 tensor of one dimension, got {data.dtype} of shape {tuple(data.shape)}"
        )
    return _raw(data)


def _opened(op: str, data: Tensor, formats: tuple[str, ...] | None) -> Any:
    image = _pillow(op)
    try:
        found = image.open(io.BytesIO(_bytes(op, data)), formats=formats)
        found.load()
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as e:
        raise errors.RuntimeError(f"{op}: {e}") from None
    return found


def _tensor(op: str, image: Any, mode: int, apply_exif_orientation: bool) -> Tensor:
    if apply_exif_orientation:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    wanted = _MODES.get(mode)
    if mode and wanted is None:
        raise errors.RuntimeError(f"{op}: there is no mode {mode}; torchvision.io.ImageReadMode has them")
    if image.mode.startswith("I") and wanted in (None, "L"):
        raise errors.RuntimeError(f"{op}: images of 16 bits a channel are not read; uint16 has no kernels")
    if wanted is None and image.mode not in _MODES.values():
        wanted = "RGBA" if "transparency" in image.info or image.mode in ("PA", "RGBa", "La") else "RGB"
        wanted = "L" if image.mode == "1" else wanted
    if image.format == "PNG" and wanted in ("L", "LA") and image.mode in ("RGB", "RGBA"):
        return _gray(_tensor(op, image, 3 if wanted == "L" else 4, False))
    if wanted is not None and image.mode != wanted:
        image = image.convert(wanted)
    channels = len(image.getbands())
    flat = _vector(image.tobytes())
    return flat.reshape(image.height, image.width, channels).permute(2, 0, 1).contiguous()


def _gray(image: Tensor) -> Tensor:
    """RGB, with alpha or without, in gray, in libpng's whole numbers: Pillow's are rounded otherwise."""
    red, green, blue = image[:3].to(lucid.int32)
    gray = (9794 * red + 19235 * green + 3739 * blue) >> 15
    same = (red == green) & (green == blue)
    return lucid.cat([lucid.where(same, red, gray).to(lucid.uint8)[None], image[3:]])


def read_file(filename: str) -> Tensor:
    """The bytes of a file, uint8 (N,)."""
    return _vector(Path(filename).read_bytes())


def write_file(filename: str, data: Tensor) -> Tensor:
    """Writes bytes, uint8 (N,), to a file. Returns a copy of them."""
    Path(filename).write_bytes(_bytes("write_file", data))
    return data.clone()


def decode_png(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """A PNG file's bytes as uint8 (C, H, W)."""
    return _tensor("decode_png", _opened("decode_png", data, ("PNG",)), mode, apply_exif_orientation)


def decode_jpeg(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """A JPEG file's bytes as uint8 (C, H, W)."""
    return _tensor("decode_jpeg", _opened("decode_jpeg", data, ("JPEG",)), mode, apply_exif_orientation)


def decode_webp(data: Tensor, mode: int) -> Tensor:
    """A WebP file's bytes as uint8 (C, H, W)."""
    return _tensor("decode_webp", _opened("decode_webp", data, ("WEBP",)), mode, False)


def decode_gif(data: Tensor) -> Tensor:
    """A GIF file's bytes as uint8 (3, H, W), or (frames, 3, H, W) where it has several."""
    image = _opened("decode_gif", data, ("GIF",))
    frames = []
    for i in range(getattr(image, "n_frames", 1)):
        image.seek(i)
        frames.append(_tensor("decode_gif", image, 3, False))
    return frames[0] if len(frames) == 1 else lucid.stack(frames)


def decode_image(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """The bytes of a PNG, JPEG, GIF or WebP file as uint8 (C, H, W)."""
    image = _opened("decode_image", data, ("PNG", "JPEG", "GIF", "WEBP"))
    if image.format == "GIF":
        return decode_gif(data)
    return _tensor("decode_image", image, mode, apply_exif_orientation)


def _image_of(op: str, data: Tensor) -> Any:
    if data.dtype != lucid.uint8 or data.dim() != 3 or data.size(0) not in (1, 3):
        raise errors.RuntimeError(
            f"{op}: expected a uint8 tensor of shape (1 or 3, H, W), got {data.dtype} of shape {tuple(data.shape)}"
        )
    channels, height, width = data.shape
    if not height or not width:
        raise errors.RuntimeError(f"{op}: the image is empty: {tuple(data.shape)}")
    raw = _raw(data.permute(1, 2, 0).reshape(-1))
    return _pillow(op).frombytes("L" if channels == 1 else "RGB", (width, height), raw)


def _encoded(image: Any, **options: Any) -> Tensor:
    file = io.BytesIO()
    image.save(file, **options)
    return _vector(file.getvalue())


def encode_png(data: Tensor, compression_level: int) -> Tensor:
    """uint8 (1 or 3, H, W) as a PNG file's bytes."""
    if not 0 <= compression_level <= 9:
        raise errors.RuntimeError(f"encode_png: compression level should be between 0 and 9, got {compression_level}")
    return _encoded(_image_of("encode_png", data), format="PNG", compress_level=compression_level)


def encode_jpeg(data: Tensor, quality: int) -> Tensor:
    """uint8 (1 or 3, H, W) as a JPEG file's bytes."""
    if not 1 <= quality <= 100:
        raise errors.RuntimeError(f"encode_jpeg: image quality should be between 1 and 100, got {quality}")
    return _encoded(_image_of("encode_jpeg", data), format="JPEG", quality=quality)
