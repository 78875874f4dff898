"""The handwritten digits of scikit-learn as LeNet wants them, for the examples in Python and in Rust.

`python examples/digits.py [FILE]` writes them to FILE (default: target/digits.safetensors) as `train_x` [n, 1, 28, 28]
and `test_x` in float32, `train_y` [n] and `test_y` in int64.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lucid.utils.data import TensorDataset

SIZE = 28
DEFAULT = Path(__file__).resolve().parent.parent / "target" / "digits.safetensors"
DTYPES = {"float32": "F32", "int64": "I64"}


def enlarge(images: np.ndarray, size: int = SIZE) -> np.ndarray:
    """Scales (n, h, w) to (n, size, size) by bilinear interpolation between pixel centres."""

    def axis(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place = np.clip((np.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
        low = np.minimum(place.astype(int), count - 2)
        return low, low + 1, (place - low).astype(np.float32)

    top, bottom, down = axis(images.shape[1])
    left, right, across = axis(images.shape[2])
    rows = images[:, top] * (1 - down)[:, None] + images[:, bottom] * down[:, None]
    scaled: np.ndarray = rows[:, :, left] * (1 - across) + rows[:, :, right] * across
    return scaled


def load(size: int = SIZE, normalise: bool = True, test_share: float = 0.2, seed: int = 0) -> dict[str, np.ndarray]:
    """1,797 scans of 8 by 8, scaled to `size`, split with equal shares of each digit.

    Ink is 1 and paper 0, or, normalised, shifted and scaled to mean 0 and deviation 1.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = enlarge(digits.images.astype(np.float32) / 16, size)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target.astype(np.int64), test_size=test_share, stratify=digits.target, random_state=seed
    )
    mean, deviation = (train_x.mean(), train_x.std()) if normalise else (0, 1)
    return {
        "train_x": ((train_x - mean) / deviation)[:, None].astype(np.float32),
        "train_y": train_y,
        "test_x": ((test_x - mean) / deviation)[:, None].astype(np.float32),
        "test_y": test_y,
    }


def datasets(size: int = SIZE, normalise: bool = True) -> tuple[TensorDataset, TensorDataset]:
    """What `load` gives, as data sets of (image, digit) to train on and to test with."""
    # Not above, so that the file for Rust is written without Lucid.
    import lucid
    from lucid.utils.data import TensorDataset

    arrays = {name: lucid.from_numpy(array) for name, array in load(size, normalise).items()}
    return TensorDataset(arrays["train_x"], arrays["train_y"]), TensorDataset(arrays["test_x"], arrays["test_y"])


def save(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file: the header's length, the header as JSON, the arrays one after the other."""
    header: dict[str, object] = {}
    end = 0
    # Widest elements first, so that every array starts on a multiple of its element's size.
    for name in sorted(arrays, key=lambda n: -arrays[n].itemsize):
        start, end = end, end + arrays[name].nbytes
        header[name] = {
            "dtype": DTYPES[str(arrays[name].dtype)],
            "shape": arrays[name].shape,
            "data_offsets": (start, end),
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in header:
            file.write(np.ascontiguousarray(arrays[name]).tobytes())
    part.replace(path)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    made = load()
    save(made, target)
    print(f"{target}: {len(made['train_x'])} digits to train on, {len(made['test_x'])} to test with")
