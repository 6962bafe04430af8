import contextlib
import io
import re
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from openradial.data.readers.images import centre_box, cut, jpeg_size
from openradial.errors import DataError, MissingError, OptionError
from tests.data.pictures import encoded, jpeg, noise, read_image


def read(tmp_path, content, **options):
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    return read_image(path, **options)


def pixels(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"quality": 95, "subsampling": 0}, {"subsampling": 2}, {"exif": b"Exif\0\0"}]
)
@pytest.mark.parametrize(("width", "height"), [(20, 20), (33, 17), (1, 1)])
def test_a_jpeg_decodes_to_what_pillow_decodes(tmp_path, width, height, options):
    content = jpeg(width, height, **options)
    expected = pixels(Image.open(io.BytesIO(content)).convert("RGB"))
    assert torch.equal(read(tmp_path, content), expected)


def test_a_grey_jpeg_becomes_rgb_with_three_equal_channels(tmp_path):
    grey = noise(20, 10).convert("L")
    red, green, blue = read(tmp_path, encoded(grey))
    assert torch.equal(red, green)
    assert torch.equal(green, blue)
    assert read(tmp_path, encoded(grey), channels=1).shape == (1, 10, 20)


def test_a_cmyk_jpeg_has_the_colours_of_its_rgb_original(tmp_path):
    image = Image.new("RGB", (16, 16), (200, 100, 50))
    found = read(tmp_path, encoded(image.convert("CMYK"), quality=100))
    assert (found.float() - pixels(image).float()).abs().max() <= 3
    assert cut(encoded(image.convert("CMYK")), 8, centre_box)[1] == "CMYK"


def test_transparent_pixels_are_laid_on_white(tmp_path):
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 255))
    image.putpixel((1, 0), (10, 20, 30, 0))
    assert read(tmp_path, encoded(image, "PNG"))[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]


@pytest.mark.parametrize("grey", [False, True])
def test_a_palette_or_grey_image_with_a_transparent_colour_is_laid_on_white(tmp_path, grey):
    image = Image.new("L", (2, 1), 7) if grey else Image.new("P", (2, 1), 0)
    image.putpixel((1, 0), 3)
    if not grey:
        image.putpalette([1, 2, 3, 0, 0, 0, 0, 0, 0, 9, 9, 9])
    found = read(tmp_path, encoded(image, "PNG", transparency=3))
    assert found[:, 0, 1].tolist() == [255, 255, 255]
    assert found[:, 0, 0].tolist() == ([7, 7, 7] if grey else [1, 2, 3])


def oriented(image, orientation, format="JPEG", **options):
    """Return a file that a viewer shows as ``image``: stored turned, with the tag that turns it back."""
    exif = Image.Exif()
    exif[274] = orientation
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Image.Transpose: 0 mirror, 1 flip, 2 to 4 turns, 5, 6 diagonals
    stored = image if orientation == 1 else image.transpose(Image.Transpose(undo[orientation]))
    return encoded(stored, format, exif=exif.tobytes(), **options)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_exif_orientation_is_applied(tmp_path, orientation, format):
    image = noise(24, 16)
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(format, {})
    found = read(tmp_path, oriented(image, orientation, format, **options))
    assert found.shape == (3, 16, 24)
    assert (found.float() - pixels(image).float()).abs().max() <= (6 if format == "JPEG" else 0)


@pytest.mark.parametrize("orientation", [3, 6])
@pytest.mark.parametrize("channels", [1, 3])
def test_both_decoders_apply_the_orientation_to_a_scaled_box(monkeypatch, orientation, channels):
    from openradial.data.readers import images

    image = noise(400, 240) if channels == 3 else noise(400, 240).convert("L")
    content = oriented(image, orientation, quality=95)
    off_centre = lambda w, h: (0, h - 160, 160, h)  # noqa: E731
    expected = np.asarray(image.crop((0, 80, 160, 240)).resize((40, 40), Image.Resampling.BILINEAR)).astype(int)
    fast = cut(content, 40, off_centre, channels)[0]
    images._jpeg_decoder.cache_clear()
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    slow = cut(content, 40, off_centre, channels)[0]
    images._jpeg_decoder.cache_clear()
    for found in (fast, slow):
        assert np.abs(found.reshape(expected.shape).astype(int) - expected).mean() < 4


@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0 nothing of the kind"])
def test_a_damaged_orientation_does_not_matter(tmp_path, exif):
    assert read(tmp_path, jpeg(20, 10, exif=exif)).shape == (3, 10, 20)


def test_transparent_16_bit_grey_is_laid_on_white(tmp_path):
    image = Image.fromarray(np.array([[512, 700]], dtype=np.uint16))
    assert read(tmp_path, encoded(image, "PNG", transparency=700), channels=1)[0, 0].tolist() == [2, 255]


def test_pixels_that_pillow_does_not_convert_are_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"the image has pixels of a kind that Pillow does not convert .*; save it as RGB"
    ):
        read(tmp_path, encoded(Image.new("LAB", (4, 4)), "TIFF"), channels=1)


def test_a_name_with_a_zero_byte_is_refused():
    with pytest.raises(DataError, match=r"the image cannot be read \(its name has a zero byte\)"):
        read_image("a\0.png")


@pytest.mark.parametrize("values", [np.float32([[0.5]]), np.int32([[70_000]]), np.int32([[-1]])])
def test_pixels_of_unknown_scale_are_refused(tmp_path, values):
    with pytest.raises(DataError, match="has 32-bit pixels, whose scale is not known; convert it to 8 or 16 bits"):
        read(tmp_path, encoded(Image.fromarray(values), "TIFF"))


def test_16_bit_grey_keeps_its_upper_8_bits(tmp_path):
    image = Image.fromarray(np.array([[0, 255, 256, 65_535]], dtype=np.uint16))
    assert read(tmp_path, encoded(image, "PNG"), channels=1)[0, 0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize(
    ("mode", "kind", "format"),
    [
        ("RGB", "RGB", "JPEG"),
        ("RGB", "RGB", "BMP"),
        ("L", "grey", "PNG"),
        ("1", "grey", "PNG"),
        ("P", "palette", "PNG"),
        ("P", "palette", "GIF"),
        ("RGBA", "alpha", "WEBP"),
        ("LA", "alpha", "PNG"),
        ("I;16", "16-bit", "PNG"),
        ("CMYK", "CMYK", "JPEG"),
    ],
)
def test_the_kind_of_a_file_is_told(mode, kind, format):
    image = Image.fromarray(np.full((8, 8), 700, np.uint16)) if mode == "I;16" else noise(8, 8).convert(mode)
    if mode == "RGBA":
        image.putalpha(128)
    assert cut(encoded(image, format), 8, centre_box)[1] == kind


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty (0 bytes)"),
        (b"these are words", "is not in a format that Pillow reads"),
        (jpeg(64, 64)[:-40], "is damaged (image file is truncated ("),
        (jpeg(64, 64)[:30], "is damaged (Truncated File Read)"),
        (encoded(noise(64, 64), "PNG")[:200], "is damaged ("),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not in a format that Pillow reads"),
    ],
)
def test_a_broken_image_is_named_with_the_reason(tmp_path, content, reason):
    message = f"{tmp_path / 'image.jpg'}: the image {reason}"
    with pytest.raises(DataError, match=f"^{re.escape(message)}.*; replace it or leave it out$"):
        read(tmp_path, content)


@given(keep=st.integers(0, 700))
def test_a_jpeg_that_ends_early_is_refused_wherever_it_ends(keep):
    content = jpeg(40, 40)
    keep = min(keep, len(content) - 3)  # without its end mark and a byte before
    with pytest.raises(DataError):
        cut(content[:keep], 8, centre_box)


@given(
    format=st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "GIF"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=20),
)
def test_changed_bytes_give_an_image_or_our_error(format, changes):
    content = bytearray(encoded(noise(12, 9), format))
    for place, value in changes:
        content[int(place * len(content))] = value
    with contextlib.suppress(DataError):
        assert cut(bytes(content), 8, centre_box)[0].shape == (8, 8, 3)


def test_an_absent_file_is_named_with_the_reason(tmp_path):
    with pytest.raises(DataError, match=r"none.jpg: the image cannot be read \(No such file or directory\); replace"):
        read_image(tmp_path / "none.jpg")


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_more_pixels_than_pillow_allows_are_refused_before_decoding(tmp_path, monkeypatch, format):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(
        DataError, match=r"image.jpg: the image (has 20 x 20 pixels, more than|is larger than Pillow allows)"
    ):
        read(tmp_path, encoded(noise(20, 20), format))


def test_a_bomb_is_refused_by_its_header(tmp_path):
    content = bytearray(jpeg(16, 16))
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = b"\x7f\xff\x7f\xff"
    with pytest.raises(DataError, match="has 32767 x 32767 pixels, more than the 89,478,485 that Pillow allows"):
        read(tmp_path, bytes(content))


@pytest.mark.parametrize(("width", "height", "size"), [(50, 40, 32), (30, 30, 64), (400, 90, 24), (33, 47, 33)])
def test_cutting_equals_pillows_crop_and_resize(width, height, size):
    image = noise(width, height)
    box = centre_box(width, height)
    expected = np.asarray(image.crop(box).resize((size, size), Image.Resampling.BILINEAR)).astype(int)
    found = cut(encoded(image, "PNG"), size, centre_box)[0].astype(int)
    assert np.abs(found - expected).max() <= 2
    assert np.abs(found - expected).mean() < 0.1


@pytest.mark.parametrize("scale", [2, 4, 8])
def test_a_large_jpeg_decoded_at_a_smaller_scale_looks_the_same(scale):
    content = jpeg(37 * scale + 5, 37 * scale + 3, quality=95)
    whole = Image.open(io.BytesIO(content))
    box = centre_box(*whole.size)
    expected = np.asarray(whole.crop(box).resize((37, 37), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(cut(content, 37, centre_box)[0].astype(int) - expected).mean() < 4  # up to half a pixel beside


def test_size_and_crop_keep_the_middle(tmp_path):
    image = Image.new("RGB", (40, 20), "red")
    image.paste("blue", (10, 0, 30, 20))
    assert read(tmp_path, encoded(image, "PNG"), size=20)[2].min() == 255
    image.paste("red", (0, 0, 40, 4))
    assert read(tmp_path, encoded(image, "PNG"), size=6, crop=0.5)[2].min() == 255


def test_the_header_gives_the_size_without_decoding():
    assert jpeg_size(jpeg(33, 17)) == (33, 17, 3)
    assert jpeg_size(jpeg(33, 17, exif=b"Exif\0\0" + bytes(3000))) == (33, 17, 3)
    assert jpeg_size(encoded(noise(3, 4).convert("L"))) == (3, 4, 1)
    assert jpeg_size(encoded(noise(3, 4), "PNG")) is None
    assert jpeg_size(b"\xff\xd8" + b"\xff" * 100) is None


@pytest.mark.parametrize("marker", [b"\xff\x00", b"\xff\x01", b"\xff\xd0"])
def test_a_jpeg_with_a_second_header_is_not_taken_for_a_small_one(marker):
    # to a decoder the marker has no length and the real header follows; read as a length, it skips to a made-up one
    comment = b"\xff\xfe\xff\xfe" + bytes(0xFFFC)
    file = jpeg(33, 17)
    made_up = file[file.index(b"\xff\xc0") :][:19].replace(bytes([0, 17, 0, 33]), bytes([0, 1, 0, 1]))
    assert jpeg_size(b"\xff\xd8" + marker + comment[:-2] + made_up + file[2:]) in (None, (33, 17, 3))


def test_a_wrong_number_of_channels_is_refused(tmp_path):
    with pytest.raises(OptionError, match="channels must be one of '1', '3', got '4'"):
        read(tmp_path, jpeg(), channels=4)


def test_without_pillow_the_package_to_install_is_named(tmp_path, monkeypatch):
    from openradial.data.readers import images

    images._pillow.cache_clear()
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingError, match=r"reading images needs the package PIL.*pip install 'openradial\[images\]'"):
        read(tmp_path, jpeg())
    images._pillow.cache_clear()


@pytest.mark.parametrize("size", [32, 90])
@pytest.mark.parametrize("channels", [1, 3])
def test_pillow_reads_a_jpeg_where_the_fast_decoder_is_missing(monkeypatch, size, channels):
    from openradial.data.readers import images

    image = noise(60, 50) if channels == 3 else noise(60, 50).convert("L")
    fast = cut(encoded(image, quality=95), size, centre_box, channels)
    images._jpeg_decoder.cache_clear()
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    slow = cut(encoded(image, quality=95), size, centre_box, channels)
    images._jpeg_decoder.cache_clear()
    assert fast[1] == slow[1]
    assert np.array_equal(fast[0], slow[0])


@pytest.mark.parametrize("header", [None, (30, 30, "YCbCr", "420")])
def test_a_file_that_the_fast_decoder_refuses_is_left_to_pillow(monkeypatch, header):
    from openradial.data.readers import images

    class Refusing:
        def decode_jpeg_header(self, _data):
            return header or self.decode_jpeg()

        def decode_jpeg(self, *_arguments, **_options):
            raise ValueError("not today")

    expected = cut(jpeg(30, 30), 20, centre_box)[0]
    monkeypatch.setattr(images, "_jpeg_decoder", Refusing)
    assert np.array_equal(cut(jpeg(30, 30), 20, centre_box)[0], expected)
