#!/usr/bin/env python3
"""golden_images.py - make the numbers of test/golden/images_golden.c with TensorFlow.

usage: golden_images.py [--out FOLDER]     (default: test/golden/data beside this script)

Needs tensorflow and pillow. Writes small encoded images (JPEG and PNG of many kinds), and images.npz: pixels of two
images (u8 and f32), what tf.image makes of them, and what tf.io decodes from the encoded ones. The name of an array says
what was done: tests repeat it. Interlaced PNGs are written here, since pillow cannot.
"""
import argparse
import io
import os
import struct
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np
import tensorflow as tf
from PIL import Image


def picture(h, w, c, seed):
    """Smooth colors with some noise, as photographs have."""
    r = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    waves = [np.sin(x * (0.1 + 0.07 * k) + k) + np.cos(y * (0.13 + 0.05 * k) - k) for k in range(c)]
    return np.clip(np.stack(waves, -1) * 55 + 128 + r.standard_normal((h, w, c)) * 6, 0, 255).astype("u1")


def interlaced(a):
    """A PNG of RGB pixels in Adam7 order, rows not filtered."""
    raw = b""
    for y0, x0, dy, dx in [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]:
        part = a[y0::dy, x0::dx]
        if part.size:
            raw += b"".join(b"\0" + row.tobytes() for row in part)
    chunk = lambda t, d: struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
    head = struct.pack(">IIBBBBB", a.shape[1], a.shape[0], 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def encoded():
    """name -> bytes"""
    rgb = Image.fromarray(picture(37, 45, 3, 1))
    files = {}

    def save(name, image, **opts):
        out = io.BytesIO()
        image.save(out, **opts)
        files[name] = out.getvalue()

    save("rgb420.jpg", rgb, format="JPEG", quality=90)
    save("rgb444.jpg", rgb, format="JPEG", quality=95, subsampling=0)
    save("rgb422.jpg", rgb, format="JPEG", quality=60, subsampling=1)
    save("progressive.jpg", rgb, format="JPEG", quality=80, progressive=True)
    save("grey.jpg", rgb.convert("L"), format="JPEG", quality=90)
    save("cmyk.jpg", rgb.convert("CMYK"), format="JPEG", quality=90)
    exif = rgb.getexif()
    exif[0x0112] = 6
    save("turned.jpg", rgb, format="JPEG", quality=90, exif=exif)
    save("rgb.png", rgb, format="PNG")
    save("grey.png", rgb.convert("L"), format="PNG")
    save("palette.png", rgb.convert("P", palette=Image.Palette.ADAPTIVE, colors=17), format="PNG")
    save("bits.png", rgb.convert("1"), format="PNG")
    alpha = Image.fromarray(picture(37, 45, 4, 2))
    save("rgba.png", alpha, format="PNG")
    save("la.png", alpha.convert("LA"), format="PNG")
    save("grey16.png", Image.fromarray((picture(20, 24, 1, 3)[..., 0].astype("u2") * 257)), format="PNG")
    files["interlaced.png"] = interlaced(picture(19, 21, 3, 4))
    return files


def cases(u, f):
    """name -> what tf.image makes; u is u8, f is f32 in 0 to 1."""
    t = tf.image
    out = {}
    for h, w in [(7, 9), (26, 30), (13, 17), (5, 40), (1, 1)]:
        out[f"bilinear_{h}_{w}"] = t.resize(u, (h, w))
        out[f"nearest_{h}_{w}"] = t.resize(u, (h, w), method="nearest")
        out[f"antialias_{h}_{w}"] = t.resize(u, (h, w), antialias=True)
        out[f"bilinear_f32_{h}_{w}"] = t.resize(f, (h, w))
    for name, x in (("u8", u), ("f32", f)):
        out[f"brightness_{name}"] = t.adjust_brightness(x, 0.2)
        out[f"darkness_{name}"] = t.adjust_brightness(x, -0.3)
        out[f"contrast_{name}"] = t.adjust_contrast(x, 1.7)
        out[f"flatness_{name}"] = t.adjust_contrast(x, 0.4)
        out[f"saturation_{name}"] = t.adjust_saturation(x, 2.5)
        out[f"paleness_{name}"] = t.adjust_saturation(x, 0.3)
        out[f"hue_{name}"] = t.adjust_hue(x, 0.2)
        out[f"hue_back_{name}"] = t.adjust_hue(x, -0.45)
        out[f"grey_{name}"] = t.rgb_to_grayscale(x)
        for k in (1, 2, 3):
            out[f"turn{k}_{name}"] = t.rot90(x, k)
        out[f"left_right_{name}"] = t.flip_left_right(x)
        out[f"up_down_{name}"] = t.flip_up_down(x)
        out[f"crop_{name}"] = t.crop_to_bounding_box(x, 2, 3, 6, 8)
        out[f"pad_{name}"] = t.pad_to_bounding_box(x, 4, 1, 20, 19)
        out[f"center_{name}"] = t.resize_with_crop_or_pad(x, 8, 9)
    return {k: np.asarray(v) for k, v in out.items()}


def decoded(files):
    out = {}
    for name, data in files.items():
        key = name.replace(".", "_")
        if name.endswith(".jpg"):
            for c in (1, 3) if name != "cmyk.jpg" else (3,):
                out[f"{key}_{c}"] = tf.io.decode_jpeg(data, channels=c, dct_method="INTEGER_ACCURATE").numpy()
        else:
            for c in (0, 3, 4):
                out[f"{key}_{c}"] = tf.io.decode_png(data, channels=c).numpy()
    return out


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "test", "golden", "data"))
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    u = picture(13, 17, 3, 0)
    f = (picture(13, 17, 3, 5).astype("f4") / np.float32(255)).astype("f4")
    files = encoded()
    for name, data in files.items():
        with open(os.path.join(a.out, name), "wb") as out:
            out.write(data)
    np.savez_compressed(os.path.join(a.out, "images.npz"), u8=u, f32=f, **cases(u, f), **decoded(files))
