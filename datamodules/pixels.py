"""Where pixels come from: decoded once into one file that is mapped into memory, or by the loader at each reading."""

import hashlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image
from rich.progress import track

CHANNELS = {"L": 1, "RGB": 3}
MODE = {"rgb": "RGB", "grey": "L"}


class Decoded:
    """Plain pixels, all of one size: (images, channels, size, size), uint8."""

    def __init__(self, pixels: np.ndarray, index: np.ndarray | None = None) -> None:
        self.pixels, self.index = pixels, np.arange(len(pixels)) if index is None else index
        _, self.channels, self.size, _ = pixels.shape

    def __getstate__(self) -> dict[str, Any]:
        """A worker that is not forked maps the file itself, rather than being sent all of it."""
        mapped = isinstance(self.pixels, np.memmap)
        return vars(self) | ({"pixels": Path(self.pixels.filename)} if mapped else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(self.pixels, Path):
            self.pixels = np.load(self.pixels, mmap_mode="r")

    def part(self, index: np.ndarray) -> "Decoded":
        return Decoded(self.pixels, self.index[index])

    def __getitem__(self, i: int) -> np.ndarray:
        return np.array(self.pixels[self.index[i]])

    whole = __getitem__

    def content(self) -> Iterator[np.ndarray]:
        """All pixels, a thousand images at a time."""
        for start in range(0, len(self.index), 1000):
            yield self.pixels[self.index[start : start + 1000]]


class Encoded:
    """Images in their files: each is decoded, resized and cut when it is asked for."""

    def __init__(self, rows: Any, column: str, whose: str, colour: str, size: int, index: np.ndarray | None = None):
        self.rows, self.column, self.whose, self.colour, self.size = rows, column, whose, colour, size
        self.index = np.arange(len(rows)) if index is None else index
        self.mode = mode_of(decoded(rows, column, 0, whose), colour, f"image 0 of {whose}")
        self.channels = CHANNELS[self.mode]

    def part(self, index: np.ndarray) -> "Encoded":
        return Encoded(self.rows, self.column, self.whose, self.colour, self.size, self.index[index])

    def whole(self, i: int) -> np.ndarray:
        """As it is, of its own shape."""
        return array_of(self.image(i))

    def __getitem__(self, i: int) -> np.ndarray:
        return array_of(fitted(self.image(i), self.size))

    def image(self, i: int) -> Image.Image:
        row = int(self.index[i])
        image = decoded(self.rows, self.column, row, self.whose)
        return agreeing(image, self.mode, self.colour, f"image {row} of {self.whose}")

    def content(self) -> Iterator[np.ndarray]:
        """What the data set calls itself, since to look at all pixels would take hours."""
        yield np.frombuffer(f"{self.rows._fingerprint} {self.size} {self.mode}".encode(), dtype=np.uint8)
        yield self.index


Pixels = Decoded | Encoded


def open_pixels(rows: Any, column: str, whose: str, colour: str, image_size: int | str, decode: str) -> Pixels:
    """The images of one split.

    Raises:
        ValueError: a column without images, a file that cannot be read, images of several sizes or modes where none
            is asked for; each names the first.
    """
    import datasets

    if column not in rows.column_names or not isinstance(rows.features[column], datasets.Image):
        images = [name for name, feature in rows.features.items() if isinstance(feature, datasets.Image)]
        raise ValueError(f"{whose} has no images in a column {column!r}; it has them in {', '.join(images) or 'none'}")
    if decode == "each_time":
        return Encoded(rows, column, whose, colour, image_size)
    how = f"{rows._fingerprint} {column} {colour} {image_size} {PIL.__version__} {Path(__file__).read_text()}"
    key = hashlib.sha256(how.encode()).hexdigest()[:16]
    path = Path(datasets.config.HF_DATASETS_CACHE) / "decoded-pixels" / f"{key}.npy"
    if not path.exists():
        decode_all(rows, column, whose, colour, image_size, path)
    return Decoded(np.load(path, mmap_mode="r"))


def decode_all(rows: Any, column: str, whose: str, colour: str, image_size: int | str, path: Path) -> None:
    """Writes beside the file and renames: what stands is whole."""
    first = decoded(rows, column, 0, whose)
    mode = mode_of(first, colour, f"image 0 of {whose}")
    size = first.width if image_size == "as_they_are" else image_size
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{uuid.uuid4().hex}.part")
    pixels = np.lib.format.open_memmap(draft, "w+", np.uint8, (len(rows), CHANNELS[mode], size, size))
    try:
        for i in track(range(len(rows)), f"decoding {whose}", transient=True, disable=not sys.stderr.isatty()):
            image = agreeing(decoded(rows, column, i, whose), mode, colour, f"image {i} of {whose}")
            if image_size == "as_they_are" and image.size != (size, size):
                raise ValueError(
                    f"image {i} of {whose} has {image.width} × {image.height} pixels, the first {first.width} × "
                    f"{first.height}: give data.image_size, to which all are resized and cut"
                )
            pixels[i] = array_of(fitted(image, size))
        pixels.flush()
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


def decoded(rows: Any, column: str, i: int, whose: str) -> Image.Image:
    try:
        image = rows[i][column]
    except Exception as error:  # a broken file may raise almost anything in PIL
        raise ValueError(f"image {i} of {whose} cannot be read: {error}") from error
    if image is None:
        raise ValueError(f"image {i} of {whose} is missing")
    return image


def mode_of(image: Image.Image, colour: str, which: str) -> str:
    mode = MODE.get(colour, image.mode)
    if mode not in CHANNELS:
        raise ValueError(f"{which} is of mode {mode}: give data.colour rgb or grey")
    return mode


def agreeing(image: Image.Image, mode: str, colour: str, which: str) -> Image.Image:
    """In the mode that all have.

    Raises:
        ValueError: where another one is found and no conversion is asked for.
    """
    if image.mode != mode and colour == "as_they_are":
        names = {"L": "grey (L)", "RGB": "coloured (RGB)"}
        raise ValueError(f"{which} is {names.get(image.mode, image.mode)}, the first {names[mode]}: give data.colour")
    return converted(image, mode, which)


def converted(image: Image.Image, mode: str, which: str) -> Image.Image:
    """
    Raises:
        ValueError: where a channel has more than eight bits, which Pillow would cut off rather than scale.
    """
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"{which} has more than eight bits a channel (mode {image.mode}): save it with eight")
    return image.convert(mode)


def fitted(image: Image.Image, size: int) -> Image.Image:
    """The shorter side resized, the middle square cut out; as it is where it fits."""
    if image.size == (size, size):
        return image
    scale = size / min(image.size)
    image = image.resize([max(size, round(side * scale)) for side in image.size], Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return image.crop((left, top, left + size, top + size))


def array_of(image: Image.Image) -> np.ndarray:
    """(channels, height, width), uint8."""
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
