"""The parsers of bytes: each takes any bytes and either accepts them or raises one of openradial's own errors.

``fuzzer.py`` feeds them with mutated bytes, ``test_cases.py`` with those that broke one before.
"""

import asyncio
import gzip
import io
import json
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from openradial.errors import OpenRadialError

SCRATCH = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())


@cache
def folder():
    """Return a folder in memory that is removed at the end."""
    made = tempfile.TemporaryDirectory(prefix="openradial-fuzz-", dir=SCRATCH)
    folder.keep = made
    return Path(made.name)


def written(name, data):
    path = folder() / name
    path.write_bytes(data)
    return path


@dataclass(frozen=True)
class Target:
    """A parser, files that it accepts, the modules whose branches guide the mutations, and a share of all runs."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    modules: tuple[str, ...]
    share: int


TARGETS = {}


def target(seeds, *modules, share=10):
    def register(function):
        TARGETS[function.__name__] = Target(function, seeds, modules, share)
        return function

    return register


def check(name, data):
    """Run a target; only openradial's own errors may leave a parser."""
    with suppress(OpenRadialError):
        TARGETS[name].run(data)


# --- structure-aware mutations: checksums and archives would refuse nearly all mutated bytes

VALUES = [None, True, 0, -1, 1, 2, 0.5, 1e308, 2**31, 2**63, 10**30, "", "x", "\ud800", "0", [], {}, [0], [[]]]
VALUES += [{"a": 1}, "outputs", "mean", 1e-320, -0.0, "a" * 300, [1, "x", None], list(range(50))]


def mutated(value, data):
    """Change a JSON value at places that ``data`` chooses, three bytes for each change."""
    value = json.loads(json.dumps(value))
    for path, depth, new in zip(data[::3], data[1::3], data[2::3], strict=False):
        at, steps = value, depth % 6
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = keys[path % len(keys)]
            if steps == 0 or not isinstance(at[key], dict | list) or not at[key]:
                break
            at, steps, path = at[key], steps - 1, (path * 7 + depth) % 256
        if new < 16:
            del at[key]
        elif new < 32 and isinstance(at, dict):
            at[VALUES[new % 3 + 11]] = at.pop(key)
        elif new < 48 and isinstance(at, list):
            at.insert(key, deepcopy(VALUES[new % len(VALUES)]))
        else:
            at[key] = deepcopy(VALUES[new % len(VALUES)])
        if not value:
            break
    return value


def random_changes():
    return [bytes(np.random.default_rng(seed).integers(0, 256, 3 * (1 + seed % 3))) for seed in range(32)]


# --- tables

CSV = b'length,colour,day,y\n1.5,red,2024-01-31,a\n-2e3,"blu""e",2024-02-01,b\n,NA,,a\n0017,x,31.12.2023,1.0\n'
JSON_LINES = b'{"length": 1.5, "colour": "red", "y": 1}\n{"length": null, "colour": "b", "y": 2.0}\n'


def use(table):
    """Use a table as ``fit`` does: infer types, fit the encoder, and apply it."""
    from openradial.data.column_types import infer_types, type_notes
    from openradial.data.table_encoder import TableEncoder

    types = infer_types(table.columns)
    type_notes(table.columns, types)
    encoder = TableEncoder.fit(table, types=types)
    assert bool(encoder.apply(table).inputs.isfinite().all()), "encoded numbers must be finite"
    TableEncoder.from_json(encoder.to_json())


def read_both_ways(path):
    from openradial.data.readers.table_files import stream_table
    from openradial.data.readers.tables import read_table

    for raw in stream_table(path, ["length", "colour"]):
        assert (raw.error is None) != (raw.raw is None)
    use(read_table(path, label="y"))


def texts():
    return [CSV, CSV.replace(b",", b";"), b"\xef\xbb\xbf" + CSV, b"length\tcolour\ty\n1\ta\tb\n", b"x,y\n1,2\n" * 3]


@target(texts, "openradial.data.readers", "openradial.data.column_types", "openradial.data.table_encoder", share=40)
def csv(data):
    read_both_ways(written("t.csv", data))


@target(lambda: [JSON_LINES, b'{"y": [1]}', b"[" * 50], "openradial.data.readers", share=40)
def json_lines(data):
    read_both_ways(written("t.jsonl", data))


@target(lambda: [gzip.compress(CSV), CSV], "openradial.data.readers", share=15)
def csv_gz(data):
    read_both_ways(written("t.csv.gz", data if data[:1] == b"\x1f" else gzip.compress(data, 1)))


@target(lambda: [CSV, JSON_LINES], "openradial.data.readers", share=100)
def standard_input(data):
    from openradial.data.readers.table_files import stream_lines

    with suppress(UnicodeDecodeError):  # the terminal's, before our code
        for raw in stream_lines(io.StringIO(data.decode("utf-8"), newline=""), ["length", "colour"]):
            assert (raw.error is None) != (raw.raw is None)


def parquet_files():
    import pyarrow as arrow
    from pyarrow import parquet as written_by

    columns = {"length": [1.5, None, 3.0], "colour": ["a", "b", None], "y": [1, 2, 2]}
    made = []
    for options in ({"compression": "none"}, {"use_dictionary": False, "compression": "none"}):
        stream = io.BytesIO()
        written_by.write_table(arrow.table(columns), stream, **options)
        made.append(stream.getvalue())
    stream = io.BytesIO()
    written_by.write_table(arrow.table({"features": [[1.0, 2.0], [3.0, 4.0]], "labels": ["a", "b"]}), stream)
    return [*made, stream.getvalue()]


@target(parquet_files, "openradial.data.readers", "openradial.data.sources", share=5)
def parquet(data):
    from openradial.data import sources

    path = written("t.parquet", data)
    sources.open(path, label="y")
    read_both_ways(path)


# --- arrays


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def arrays():
    values = [np.arange(6.0).reshape(3, 2), np.arange(3), np.array(["a", "b"]), np.zeros((2, 4, 4), np.uint8)]
    return [*map(npy, values), npy(np.array([1.5, np.nan], np.float16)), npy(np.zeros((2, 3, 3, 1), np.uint8))]


@target(arrays, "openradial.data.readers", share=30)
def npy_file(data):
    from openradial.data.readers.embeddings import read_embeddings

    read_embeddings(written("f.npy", data))


@target(arrays, "openradial.data.readers", "openradial.data.sources", share=15)
def npz_file(data):
    """Mutate the arrays in a sound archive: as features, table, images and sequences."""
    from openradial.data import sources
    from openradial.data.readers.tables import read_table

    path = written("t.npz", npz(x=data, y=npy(np.arange(3))))
    for read in (
        lambda: sources.open(path),
        lambda: use(read_table(path, label="y")),
        lambda: list(sources.stream([path], "table", columns=["x0"])),
        lambda: list(sources.stream([path], "images")),
        lambda: list(sources.stream([path], "sequences")),
        lambda: list(sources.stream([path], "points")),
    ):
        with suppress(OpenRadialError):
            read()


@target(lambda: [npz(x=npy(np.eye(3)), y=npy(np.arange(3))), npz(features=npy(np.eye(3)))], "openradial.data", share=15)
def npz_archive(data):
    from openradial.data import sources

    sources.open(written("a.npz", data), label="y")


def idx_files():
    small = b"\0\0\x08\x03" + struct.pack(">III", 2, 2, 2) + bytes(8)
    labels = b"\0\0\x08\x01" + struct.pack(">I", 3) + b"\0\1\2"
    return [small, labels, b"\0\0\x0e\x01" + struct.pack(">I", 1) + bytes(8)]


@target(idx_files, "openradial.data.readers.idx", share=300)
def idx(data):
    from openradial.data.readers.idx import read_idx

    read_idx(written("t-images", data))


@target(lambda: [gzip.compress(each) for each in idx_files()] + idx_files(), "openradial.data.readers.idx", share=30)
def idx_gz(data):
    from openradial.data.readers.idx import labelled_images

    written("t-images-idx3-ubyte.gz", gzip.compress(idx_files()[0], 1))
    written("t-labels-idx1-ubyte.gz", data if data[:1] == b"\x1f" else gzip.compress(data, 1))
    labelled_images(folder(), "t", ("a", "b", "c"))


def cifar_records():
    return [bytes(3073), b"\x0b" + bytes(3072), bytes(10)]


@target(cifar_records, "openradial.data.sets", share=100)
def cifar10_records(data):
    from openradial.data.sets.cifar10 import _from_records

    _from_records({"test_batch": data}, Path("test"))


@target(lambda: [b"[" + b",".join([b"0"] * 784) + b"]\n"], "openradial.data.sets", share=30)
def quickdraw_lines(data):
    from openradial.data.sets.quickdraw import _parse

    _parse(gzip.compress(data, 1), "test", Path("cat"))


# --- images


def image_files():
    from PIL import Image

    made = []
    kinds = {"JPEG": "RGB", "GIF": "RGB", "BMP": "RGB", "WEBP": "RGB", "PPM": "L", "TIFF": "I;16"}
    for kind, mode in kinds.items():
        stream = io.BytesIO()
        Image.new(mode, (20, 12), 100 if mode == "I;16" else None).save(stream, kind)
        made.append(stream.getvalue())
    for options in ({"exif": exif(6)}, {"quality": 20, "progressive": True}):
        stream = io.BytesIO()
        Image.new("RGB", (20, 12), "red").save(stream, "JPEG", **options)
        made.append(stream.getvalue())
    return made


def exif(orientation):
    from PIL import Image

    tags = Image.Exif()
    tags[274] = orientation
    return tags


def png_files():
    from PIL import Image

    made = []
    for mode in ("RGB", "RGBA", "L", "LA", "P", "I;16", "1"):
        stream = io.BytesIO()
        Image.new(mode, (6, 4)).save(stream, "PNG")
        made.append(stream.getvalue())
    return made


def decode(data):
    from openradial.data.readers.images import centre_box, cut, read_pixels
    from openradial.server.inputs import _image
    from openradial.server.requests import RequestError
    from openradial.server.settings import Limits

    try:
        _image(data, Limits(pixels=250_000))  # the service counts pixels first
    except RequestError as error:
        if error.status == 413:
            return
        raise
    for channels in (1, 3):
        pixels = read_pixels(data, channels)
        assert pixels.dtype == np.uint8
        assert pixels.shape[2:] == (channels,)
        assert cut(data, 8, centre_box, channels)[0].shape == (8, 8, channels)


IMAGES = ("openradial.data.readers.images", "openradial.server.inputs")


@target(image_files, *IMAGES, share=10)
def image(data):
    decode(data)


@target(png_files, *IMAGES, share=10)
def png(data):
    """Mutate the chunks of a PNG file, each with the checksum that belongs to it."""
    decode(b"".join(_sound_chunks(data)))


def _sound_chunks(data) -> Iterator[bytes]:
    yield data[:8]
    at = 8
    while at + 8 <= len(data):
        length = min(int.from_bytes(data[at : at + 4]), len(data) - at - 8)
        body = data[at + 4 : at + 8 + length]
        if body[:4] == b"IDAT" and length < 200:
            with suppress(zlib.error):
                body = b"IDAT" + zlib.compress(zlib.decompress(body[4:]))
        yield struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + length


# --- bundles, checkpoints and the feature cache


@cache
def bundles():
    """Save a small bundle of each kind; return folders and records."""
    import made_bundles

    from openradial.bundle import save

    made = []
    for name in ("image", "table", "point", "sequence", "text"):
        path = save(getattr(made_bundles, f"{name}_bundle")(), folder() / "bundles" / name)
        made.append((path, json.loads((path / "bundle.json").read_text())))
    return made


BUNDLES = ("openradial.bundle", "openradial.heads.files", "openradial.scorers", "openradial.conformal.rejector")


@target(lambda: [(bundles()[1][0] / "bundle.json").read_bytes(), b"{}", b"[1]"], "openradial.bundle", share=40)
def bundle_json(data):
    """Mutate the text of bundle.json."""
    from openradial.bundle import describe

    path = folder() / "raw"
    path.mkdir(exist_ok=True)
    if not (path / "weights.safetensors").exists():
        (path / "weights.safetensors").write_bytes((bundles()[1][0] / "weights.safetensors").read_bytes())
    (path / "bundle.json").write_bytes(data)
    describe(path)


@target(lambda: [bytes([k]) + each for k in range(5) for each in random_changes()], *BUNDLES, share=2)
def bundle_record(data):
    """Mutate the values of bundle.json, with the checksum that belongs to them, and predict."""
    from openradial.bundle import load
    from openradial.bundle.record import record_checksum

    path, record = bundles()[data[0] % 5 if data else 0]
    before = (path / "bundle.json").read_bytes()
    changed = mutated(record, data[1:])
    if isinstance(changed, dict):
        changed["checksum"] = record_checksum(changed)
    try:
        (path / "bundle.json").write_text(json.dumps(changed))
        model = load(path)
        sizes = [size or 3 for size in model.preprocessing.shape]
        if np.prod(sizes, dtype=float) < 1e6:
            model.predict(torch.zeros(2, *sizes, dtype=model.preprocessing.dtype))
    finally:
        (path / "bundle.json").write_bytes(before)


@target(lambda: [bytes([k]) + each for k in range(5) for each in random_changes()], *BUNDLES, share=2)
def bundle_weights(data):
    """Mutate the header of the weights, with sizes and checksums that belong to it."""
    import hashlib

    from openradial.bundle import load
    from openradial.bundle.record import record_checksum

    path, record = bundles()[data[0] % 5 if data else 0]
    weights, before = path / "weights.safetensors", (path / "bundle.json").read_bytes()
    content = weights.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(mutated(json.loads(content[8 : 8 + size]), data[1:])).encode()
    made = len(header).to_bytes(8, "little") + header + content[8 + size :]
    digest = f"sha256:{hashlib.sha256(made).hexdigest()}"
    changed = record | {"files": {"weights.safetensors": {"bytes": len(made), "checksum": digest}}}
    changed["checksum"] = record_checksum(changed)
    try:
        weights.write_bytes(made)
        (path / "bundle.json").write_text(json.dumps(changed))
        load(path)
    finally:
        weights.write_bytes(content)
        (path / "bundle.json").write_bytes(before)


def tensor_files():
    from safetensors.torch import save

    keys = {"keys": torch.zeros(2, 32, dtype=torch.uint8), "features": torch.ones(2, 4)}
    facts = {"format": "1", "metadata": '{"epoch": 1}', "facts": '{"head": "DOCHead", "settings": {"num_classes": 3}}'}
    plain = [save(keys), save({"keys": torch.zeros(2), "features": torch.ones(1)}), save({})]
    return [*plain, save(keys, metadata=facts), b"\x08" + bytes(7) + b"{}"]


@target(tensor_files, "openradial.training.checkpoint", "openradial.files", share=150)
def checkpoint(data):
    from openradial.training.checkpoint import load

    load(written("last.safetensors", data))


@target(tensor_files, "openradial.encoders.cache", "openradial.files", share=40)
def feature_cache(data):
    from openradial.encoders.cache import FeatureCache

    made = FeatureCache("k")
    made.folder = folder() / "features"
    made.folder.mkdir(exist_ok=True)
    (made.folder / "a.features").write_bytes(data)
    rows = made.read([bytes(32)])
    assert all(isinstance(row, torch.Tensor) for row in rows.values())


@target(tensor_files, "openradial.heads.files", "openradial.files", share=40)
def head_file(data):
    from openradial.heads.files import load_head

    load_head(written("head.safetensors", data))


# --- requests of the service

KINDS = ("application/json", "text/csv", "multipart/form-data; boundary=edge", "image/png", "application/octet-stream")
FORM = b'--edge\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\nx\r\n--edge--\r\n'


def requests():
    bodies = [b'{"inputs": [[[0, 1], [2, 3]]], "false_reject_rate": 0.1}']
    bodies += [b'{"inputs": [{"length": 1, "colour": "red"}]}', b'{"inputs": ["iVBORw0KGgo="]}']
    bodies += [b'{"inputs": [[1, 2.5]]}', b'{"inputs": [[[1, 2], [3, 4]]]}']
    rest = [bytes([1, 1]) + b"length,colour\n1,red\n", bytes([0, 2]) + FORM, bytes([0, 3]) + png_files()[2]]
    return [bytes([kind, 0]) + body for kind in range(5) for body in bodies] + rest


@cache
def models():
    from openradial.bundle import load

    return [load(path) for path, _ in bundles()]


@target(requests, "openradial.server.requests", "openradial.server.inputs", "starlette.formparsers", share=15)
def request(data):
    """Parse and prepare the body of a request; the first bytes choose the model and the content type."""
    from starlette.requests import Request

    from openradial.server.inputs import prepare_inputs
    from openradial.server.requests import MemoryBudget, read_request
    from openradial.server.settings import Limits

    if len(data) < 2:
        return
    model, limits = models()[data[0] % 5], Limits(items=8, pixels=250_000, steps=100)

    async def receive():
        return {"type": "http.request", "body": data[2:], "more_body": False}

    headers = [(b"content-type", KINDS[data[1] % len(KINDS)].encode())]
    scope = {"type": "http", "method": "POST", "headers": headers, "query_string": b"", "path": "/v1/predict"}
    with MemoryBudget(2**20).lease() as reserve:
        asked = asyncio.run(read_request(Request(scope, receive), limits, reserve, model.preprocessing))
    assert len(prepare_inputs(model, asked.inputs, limits)) == len(asked.inputs)
    if asked.rate is not None:
        model.rejector.threshold(asked.rate)
