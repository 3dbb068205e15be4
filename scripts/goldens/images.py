#!/usr/bin/env python3
"""Writes the images that a test of gpumem-data reads: kinds of PNG and JPEG, and the pixels that PIL's `convert("RGB")` has of each.

    python3 -m venv venv && venv/bin/pip install pillow numpy
    venv/bin/python scripts/goldens/images.py                  # into gpumem-data/tests/images, 20 KB

`NAME.png` or `NAME.jpg` is the image, of 16 x 12 pixels, and `NAME.rgb` its pixels: `[height, width, 3]`, bytes.
"""

import pathlib
import struct
import zlib

import numpy
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "gpumem-data/tests/images"
HEIGHT, WIDTH = 12, 16


def waves():
    """Returns smooth colours, `[height, width, 3]`."""
    y, x = numpy.mgrid[0:HEIGHT, 0:WIDTH]
    red, green, blue = 16 * x, 20 * y, 128 + 100 * numpy.sin((x + y) / 5)
    return numpy.stack([red, green, blue], axis=-1).astype(numpy.uint8)


def chunk(name, content):
    """Returns a part of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(depth, kind, rows, *parts):
    """Returns a PNG of rows that are not filtered; `parts` stand before them."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows), 9)
    chunks = chunk(b"IHDR", header) + b"".join(chunk(*part) for part in parts) + chunk(b"IDAT", pixels)
    return b"\x89PNG\r\n\x1a\n" + chunks + chunk(b"IEND", b"")


def packed(values, depth):
    """Returns rows of values of 1, 2 or 4 bits."""
    bits = numpy.unpackbits(values.astype(numpy.uint8)[..., None], axis=-1)[..., 8 - depth :]
    return numpy.packbits(bits.reshape(HEIGHT, -1), axis=-1)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    colors = waves()
    grey, alpha = colors[..., 0], colors[..., 1]
    wide = (colors.astype(">u2") * 256 + 77).astype(">u2")
    palette = bytes((7 * index) % 256 for index in range(48))
    files = {
        "grey.png": png(8, 0, grey),
        "grey_alpha.png": png(8, 4, numpy.stack([grey, alpha], -1).reshape(HEIGHT, -1)),
        "grey_1bit.png": png(1, 0, packed(grey // 128, 1)),
        "grey_2bit.png": png(2, 0, packed(grey // 64, 2)),
        "grey_4bit.png": png(4, 0, packed(grey // 16, 4)),
        "grey_key.png": png(8, 0, grey, (b"tRNS", struct.pack(">H", 32))),
        "grey_16bit.png": png(16, 0, [row.tobytes() for row in wide[..., 0]]),
        "rgb_alpha.png": png(8, 6, numpy.concatenate([colors, alpha[..., None]], -1).reshape(HEIGHT, -1)),
        "rgb_16bit.png": png(16, 2, [row.tobytes() for row in wide]),
        "palette_4bit.png": png(4, 3, packed(grey // 16, 4), (b"PLTE", palette)),
        "palette_alpha.png": png(8, 3, grey // 16, (b"PLTE", palette), (b"tRNS", bytes([0, 128, 255]))),
    }
    for name, content in files.items():
        (FOLDER / name).write_bytes(content)
    image = Image.fromarray(colors)
    turned = Image.Exif()
    turned[0x0112] = 6
    options = {"quality": 95, "subsampling": 0}
    image.save(FOLDER / "jpeg.jpg", **options)
    image.save(FOLDER / "jpeg_progressive.jpg", progressive=True, **options)
    image.save(FOLDER / "jpeg_turned.jpg", exif=turned, **options)
    image.convert("L").save(FOLDER / "jpeg_grey.jpg", quality=95)
    image.convert("CMYK").save(FOLDER / "jpeg_cmyk.jpg", quality=95)
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in (".png", ".jpg"):
            pixels = numpy.asarray(Image.open(path).convert("RGB"))
            if path.name == "grey_16bit.png":
                # PIL clips what exceeds 255, of this kind alone. Here it is the upper byte, as of colours.
                pixels = numpy.repeat((wide[..., :1] >> 8).astype(numpy.uint8), 3, axis=-1)
            assert pixels.shape == (HEIGHT, WIDTH, 3)
            path.with_suffix(".rgb").write_bytes(pixels.tobytes())


if __name__ == "__main__":
    main()
