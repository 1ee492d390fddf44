"""Characters of many alphabets, drawn with the fonts that come with matplotlib."""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter, ImageFont

from vicinal.data.dataset import Dataset
from vicinal.errors import InputError

# First and last code point of each range of characters.
ALPHABETS: dict[str, dict[str, list[tuple[int, int]]]] = {
    "train": {
        "Latin": [(0x41, 0x5A), (0x61, 0x7A)],
        "Greek": [(0x391, 0x3A9), (0x3B1, 0x3C9)],
        "Cyrillic": [(0x402, 0x40B), (0x40F, 0x44F), (0x452, 0x45B), (0x460, 0x475)],
        "Arrows": [(0x2190, 0x21BD), (0x21CB, 0x21D9), (0x21DC, 0x21E8)],
        "Mathematics": [(0x2200, 0x220D), (0x220F, 0x2248), (0x2260, 0x2269), (0x2282, 0x22A8)],
    },
    "test": {
        "Armenian": [(0x531, 0x556), (0x561, 0x586)],
        "Georgian": [(0x10A0, 0x10C5), (0x10D0, 0x10F6)],
        "Hebrew": [(0x5D0, 0x5EA)],
        "Arabic": [(0x621, 0x64A)],
        "Lao": [(0xE81, 0xEAE)],
        "Tifinagh": [(0x2D30, 0x2D67)],
        "Canadian": [(0x1401, 0x140A), (0x142F, 0x1439), (0x144C, 0x1456), (0x146B, 0x1474), (0x1489, 0x1492),
                     (0x14A3, 0x14AC), (0x14C0, 0x14C9), (0x14D3, 0x14DC), (0x14ED, 0x14F6), (0x1526, 0x152F),
                     (0x1542, 0x154A), (0x1555, 0x155F), (0x15A0, 0x15AE), (0x15B1, 0x15D6)],
    },
}  # fmt: skip
FACES = [
    *(f"DejaVu{face}{style}" for face in ("Sans", "SansMono") for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
]
UPRIGHT = ("DejaVuSans", "DejaVuSansMono", "DejaVuSerif")
LETTERS_AND_SYMBOLS = ("Lu", "Ll", "Lo", "Sm", "So")
POINTS = 48
LOOK_ALIKE = 0.92
MISSING = "\uffff"  # in no font, so it is drawn as the placeholder of a missing character

Pixels = npt.NDArray[np.uint8]


@lru_cache(maxsize=4)
def glyphs(*, samples: int = 20, size: int = 32, seed: int = 0) -> Dataset:
    """Return grey images of several hundred characters, bright on dark; no download needed.

    Every sample uses one of up to 16 faces and weights and a random stroke width, rotation, shear,
    scale, position, contrast and noise. A character that looks like an earlier one (Latin A, Greek
    Alpha, Cyrillic A) is left out, so that no picture belongs to two classes. Latin, Greek,
    Cyrillic, arrows and mathematics have the role "train"; the other alphabets have the role "test"
    and are never trained on. The same seed gives the same pixels with the same Pillow and matplotlib.

    Args:
        samples: Number of images per character.
        size: Height and width in pixels.
        seed: Seed of everything random.

    Example:
        >>> data = glyphs(samples=2)
        >>> data.class_names[0], data.items.shape[1:]
        ('Latin/A', (32, 32))
    """
    if samples < 1 or size < 8:
        raise InputError(f"samples must be at least 1 and size at least 8; got {samples} and {size}.")
    fonts = [_font(face) for face in FACES]
    chosen = distinct_characters()
    images = [_draw(character, fonts, samples, size, seed) for _, _, character in chosen]
    items = np.concatenate(images)
    items.flags.writeable = False  # the cache returns the same object again
    return Dataset(
        items=items,
        labels=np.repeat(np.arange(len(chosen), dtype=np.int64), samples),
        class_names=tuple(f"{alphabet}/{character}" for _, alphabet, character in chosen),
        roles=np.repeat([role for role, _, _ in chosen], samples),
        name="glyphs",
    )


@lru_cache(maxsize=1)
def distinct_characters() -> list[tuple[str, str, str]]:
    """Return (role, alphabet, character) of all characters that look like no earlier one in any upright face."""
    fonts = [_font(face) for face in UPRIGHT]
    candidates = [
        (role, alphabet, chr(code))
        for role, alphabets in ALPHABETS.items()
        for alphabet, runs in alphabets.items()
        for first, last in runs
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) in LETTERS_AND_SYMBOLS and _bitmap(fonts[0], chr(code)) is not None
    ]
    alike = np.zeros((len(candidates), len(candidates)), dtype=bool)
    for font in fonts:
        shapes = np.stack([_shape(font, character) for _, _, character in candidates])
        alike |= shapes @ shapes.T > LOOK_ALIKE
    distinct: list[int] = []
    for i in range(len(candidates)):
        if not alike[i, distinct].any():
            distinct.append(i)
    return [candidates[i] for i in distinct]


@lru_cache(maxsize=len(FACES))
def _font(face: str) -> ImageFont.FreeTypeFont:
    import matplotlib  # slow to import

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")
    return ImageFont.truetype(str(path), POINTS, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=len(FACES))
def _missing(font: ImageFont.FreeTypeFont) -> bytes:
    return bytes(font.getmask(MISSING))


def _bitmap(font: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """Return the character with a margin of one pixel, or None if the face lacks it or draws nothing."""
    core = font.getmask(character)
    if core.getbbox() is None or bytes(core) == _missing(font):
        return None
    left, top, right, bottom = core.getbbox()
    return Image.frombytes("L", core.size, bytes(core)).crop((left - 1, top - 1, right + 1, bottom + 1))


def _shape(font: ImageFont.FreeTypeFont, character: str) -> npt.NDArray[np.float32]:
    """Return the character at a standard size, blurred, as a centred unit vector; zeros if the face lacks it.

    The aspect ratio is reduced to its square root, because `_distort` stretches characters.
    """
    glyph = _bitmap(font, character)
    if glyph is None:
        return np.zeros(32 * 32, dtype=np.float32)
    slimness = math.sqrt(glyph.width / glyph.height)
    width, height = round(24 * min(1, slimness)), round(24 / max(1, slimness))
    canvas = Image.new("L", (32, 32))
    canvas.paste(glyph.resize((width, height), Image.Resampling.BILINEAR), ((32 - width) // 2, (32 - height) // 2))
    vector = np.asarray(canvas.filter(ImageFilter.GaussianBlur(1.5)), dtype=np.float32).ravel()
    vector -= vector.mean()
    return vector / np.linalg.norm(vector)


def _draw(character: str, fonts: list[ImageFont.FreeTypeFont], samples: int, size: int, seed: int) -> Pixels:
    """Return `samples` images of one character, with its own generator, so that other characters do not matter."""
    rng = np.random.default_rng([seed, ord(character)])
    bitmaps = [glyph for font in fonts if (glyph := _bitmap(font, character)) is not None]
    images = np.empty((samples, size, size), dtype=np.uint8)
    for i in range(samples):
        glyph = bitmaps[rng.integers(len(bitmaps))]
        if rng.random() < 0.3:
            glyph = glyph.filter(ImageFilter.MaxFilter(3))  # a thicker stroke
        glyph = _distort(glyph, size, rng)
        ink = np.asarray(glyph, dtype=np.float32) * rng.uniform(0.6, 1.0)
        ink += rng.normal(rng.uniform(0, 40), rng.uniform(2, 16), ink.shape)
        images[i] = np.clip(ink, 0, 255)
    return images


def _distort(glyph: Image.Image, size: int, rng: np.random.Generator) -> Image.Image:
    """Rotate, shear, scale and shift a character on a square; drawn twice as large, then halved."""
    canvas = 2 * size
    angle, shear = math.radians(rng.uniform(-12, 12)), rng.uniform(-0.2, 0.2)
    scale = max(glyph.size) / (canvas * rng.uniform(0.6, 0.8))
    stretch = rng.uniform(0.85, 1.15)
    shift = rng.uniform(-0.06, 0.06, size=2) * canvas
    a, b = scale * stretch * math.cos(angle), scale * (shear - math.sin(angle))
    d, e = scale * math.sin(angle), scale * math.cos(angle)
    centre_x, centre_y = canvas / 2 + shift[0], canvas / 2 + shift[1]
    # Pillow maps each position of the result back to a position in the glyph.
    matrix: Any = (
        a, b, glyph.width / 2 - a * centre_x - b * centre_y,
        d, e, glyph.height / 2 - d * centre_x - e * centre_y,
    )  # fmt: skip
    turned = glyph.transform((canvas, canvas), Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR)
    return turned.reduce(2)
