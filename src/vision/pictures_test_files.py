"""Writes pictures with PIL, and what PIL and torchvision make of them as raw bytes, for the tests of image.h and
preprocess.h.

Usage: python3 pictures_test_files.py FOLDER

NAME.rgb is "WIDTH HEIGHT CHANNELS\\n" and the upright pixels. views/NAME.jpg, .eval, .squash, .cubic, .crop are a picture
and its 8-bit views: Resize(256) + CenterCrop(224); 160 x 128 squashed; the first with bicubic; a box resized to 224.
"""
import pathlib
import struct
import sys

import numpy
from PIL import Image, ImageOps
from torchvision.transforms import CenterCrop, InterpolationMode, RandomResizedCrop, Resize

folder = pathlib.Path(sys.argv[1])
random = numpy.random.RandomState(11)


def photo(width, height):
    """Coloured noise with the spectrum of a photograph (amplitude ~ 1/f), with a few hard edges."""
    f = numpy.hypot(numpy.fft.fftfreq(height)[:, None], numpy.fft.fftfreq(width)[None, :])
    f[0, 0] = 1
    planes = []
    for _ in range(3):
        plane = numpy.fft.ifft2(numpy.fft.fft2(random.randn(height, width)) / f).real
        planes.append((plane - plane.mean()) / plane.std())
    luma, first, second = planes
    rgb = numpy.stack([luma + .5 * first, luma + .3 * second, luma - .4 * first], -1) * 50 + 125
    for _ in range(4):
        x, y = random.randint(0, width), random.randint(0, height)
        rgb[y:y + height // 4, x:x + width // 5] += random.randint(-90, 90, 3)
    return Image.fromarray(rgb.clip(0, 255).astype("uint8"))


def raw(path, image):
    image = image.convert("L") if image.mode in ("1", "L") else image.convert("RGB")
    channels = 1 if image.mode == "L" else 3
    path.write_bytes(b"%d %d %d\n" % (*image.size, channels) + image.tobytes())


def keep(name, image, shown=None, **options):
    image.save(folder / name, **options)
    shown = shown or ImageOps.exif_transpose(Image.open(folder / name))
    raw(folder / (name + ".rgb"), shown)


picture = photo(203, 157)
for sampling in (0, 1, 2):
    keep(f"sampling{sampling}.jpg", picture, quality=88, subsampling=sampling)
keep("progressive.jpg", picture, quality=80, progressive=True)
keep("gray.jpg", picture.convert("L"))
keep("cmyk.jpg", picture.convert("CMYK"), quality=95)
for orientation in range(1, 9):
    # An Exif block with one entry, big-endian.
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + struct.pack(">HHIHHI", 0x0112, 3, 1, orientation, 0, 0)
    keep(f"orientation{orientation}.jpg", picture, quality=90, exif=exif)

keep("plain.png", picture)
keep("gray.png", picture.convert("L"))
keep("one_bit.png", picture.convert("1"))
keep("palette.png", picture.quantize(50))
keep("interlaced.png", picture)  # replaced below: PIL cannot write it
alpha = picture.copy()
alpha.putalpha(Image.fromarray((numpy.arange(203 * 157) % 256).astype("uint8").reshape(157, 203)))
white = Image.new("RGBA", alpha.size, "white")
keep("alpha.png", alpha, shown=Image.alpha_composite(white, alpha))
gray_alpha = alpha.convert("LA")
keep("gray_alpha.png", gray_alpha, shown=Image.alpha_composite(white, gray_alpha.convert("RGBA")).convert("L"))
deep = (numpy.asarray(picture.convert("L")).astype("uint16") << 8) + 77
keep("sixteen.png", Image.fromarray(deep), shown=picture.convert("L"))

keep("picture.bmp", picture)
keep("palette.bmp", picture.quantize(16))
keep("gray.bmp", picture.convert("L"))
keep("lossless.webp", picture, lossless=True)
keep("lossy.webp", picture, quality=80)
keep("palette.gif", picture.quantize(64))
keep("picture.tif", picture)
keep("deflate.tif", picture, compression="tiff_adobe_deflate")
frames = [photo(40, 30) for _ in range(3)]
frames[0].quantize(32).save(folder / "moving.gif", save_all=True, append_images=[f.quantize(32) for f in frames[1:]])
raw(folder / "moving.gif.rgb", Image.open(folder / "moving.gif").convert("RGB"))
(folder / "interlaced.png").unlink()
(folder / "interlaced.png.rgb").unlink()

views = folder / "views"
views.mkdir()
sizes = [(300, 300), (300, 225), (225, 300), (300, 180), (97, 300), (640, 480), (1200, 900), (224, 224), (256, 256),
         (64, 48), (28, 28), (301, 299)]
for number in range(60):
    width, height = sizes[number % len(sizes)]
    name = f"{number:03}"
    photo(width, height).save(views / f"{name}.jpg", quality=int(random.choice([60, 75, 85, 90, 95])),
                              subsampling=int(random.choice([0, 1, 2])), progressive=number % 10 == 9)
    opened = Image.open(views / f"{name}.jpg").convert("RGB")
    raw(views / f"{name}.eval", CenterCrop(224)(Resize(256)(opened)))
    raw(views / f"{name}.cubic", CenterCrop(224)(Resize(256, InterpolationMode.BICUBIC)(opened)))
    raw(views / f"{name}.squash", Resize((128, 160))(opened))
    left, top = width // 5, height // 7
    right, bottom = width - width // 9, height - height // 6
    raw(views / f"{name}.crop", opened.crop((left, top, right, bottom)).resize((224, 224), Image.BILINEAR))

# The mean share of the area that RandomResizedCrop takes of a square picture.
square = Image.new("RGB", (300, 300))
boxes = [RandomResizedCrop.get_params(square, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(20000)]
(views / "area.txt").write_text(str(sum(h * w for _, _, h, w in boxes) / len(boxes) / 90000))
