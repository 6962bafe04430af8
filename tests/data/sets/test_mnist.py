import gzip
import shutil

import pytest
import torch

from openradial.data.download import fetch
from openradial.data.sets.mnist import CLASSES, SOURCE, mnist
from openradial.errors import FetchError, OptionError


@pytest.fixture(scope="module")
def real(fetched):
    return {split: fetched(mnist, split) for split in ("train", "test")}


def test_the_set_is_the_one_of_the_literature(real):
    images = real["train"].inputs
    assert images.shape == (60_000, 1, 28, 28)
    assert real["test"].inputs.shape == (10_000, 1, 28, 28)
    assert images.dtype == torch.uint8
    scaled = images.double() / 255
    assert scaled.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert scaled.std().item() == pytest.approx(0.3081, abs=5e-5)


def test_the_labels_are_those_of_the_literature(real):
    assert real["train"].classes == real["test"].classes == CLASSES == tuple("0123456789")
    assert real["train"].counts().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert real["test"].counts().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert real["test"].labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_a_users_packed_files_are_read_where_they_lie(real, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    for name in SOURCE.files:
        with gzip.open(own / f"{name}.gz", "wb", compresslevel=1) as out:
            out.write((fetch(SOURCE) / name).read_bytes())
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    found = mnist("test", root=own, download=False)
    assert torch.equal(found.inputs, real["test"].inputs)
    assert not (tmp_path / "cache").exists()


def test_a_file_with_one_wrong_byte_is_refused(real, tmp_path, monkeypatch):
    own = tmp_path / "mnist"
    shutil.copytree(fetch(SOURCE), own)
    images = own / "t10k-images-idx3-ubyte"
    content = bytearray(images.read_bytes())
    content[5000] ^= 1
    images.write_bytes(content)
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(FetchError, match=r"t10k-images-idx3-ubyte: has sha256:.*, expected sha256:0fa7898d"):
        mnist("test", root=tmp_path)


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'validation'"):
        mnist("validation")
