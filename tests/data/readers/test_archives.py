import gzip
import io
import re
import tarfile
import zipfile

import pytest

from openradial.data.readers.archives import unpacked
from openradial.data.sets.tiny_imagenet import tiny_imagenet
from openradial.errors import DataError
from tests.data.sets.test_tiny_imagenet import published


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tar_of(path, members, **options):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in options.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return path


def left(cache):
    """What an attempt left behind, apart from locks."""
    return [path.name for path in cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_an_archive_is_read_as_its_folder_is(tmp_path, kind):
    source = published(tmp_path / "source")
    archive = tmp_path / f"tiny.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as packed:
            for path in source.rglob("*"):
                packed.write(path, f"tiny-imagenet-200/{path.relative_to(source)}")
    else:
        with tarfile.open(archive, "w:gz" if kind == "tar.gz" else "w") as tar:
            tar.add(source, "tiny-imagenet-200")
    for split, labels in (("train", [0, 0, 0, 1, 1, 1]), ("val", [0, 1, 0, 1])):
        assert tiny_imagenet(archive, split).labels.tolist() == labels


def test_an_archive_is_unpacked_once(tmp_path):
    archive = tar_of(tmp_path / "a.tar.gz", {"x/1.txt": b"one"})
    folder = unpacked(archive)
    (folder / "x" / "mark").write_text("still here")
    assert unpacked(archive) == folder
    assert (folder / "x" / "mark").exists()
    tar_of(archive, {"x/1.txt": b"two"})
    assert (unpacked(archive) / "x" / "1.txt").read_bytes() == b"two"


@pytest.mark.parametrize("name", ["/etc/evil", "C:/evil", "../evil", "a/../../evil", "a\\..\\..\\evil"])
def test_members_that_would_lie_elsewhere_are_refused(tmp_path, cache, name):
    message = f"the member {name!r} would lie outside of the folder"
    with pytest.raises(DataError, match=re.escape(message)):
        unpacked(tar_of(tmp_path / "a.tar.gz", {"good.txt": b"x", name: b"x"}))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(zipfile.ZipInfo("good.txt"), b"x")
        packed.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(DataError, match=re.escape(message)):
        unpacked(tmp_path / "a.zip")
    assert left(cache) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, cache, kind):
    archive = tar_of(tmp_path / "a.tar.gz", {"a": b""}, type=kind, linkname="/etc/passwd")
    with pytest.raises(DataError, match="the member 'a' is a link or device, not a file; do not trust"):
        unpacked(archive)
    assert left(cache) == []


def test_links_in_zip_archives_are_refused(tmp_path):
    info = zipfile.ZipInfo("a")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="the member 'a' is a link or device"):
        unpacked(tmp_path / "a.zip")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_half_an_archive_is_damaged_and_leaves_nothing(tmp_path, cache, keep):
    content = bytes(range(256)) * 40
    whole = tar_of(
        tmp_path / "whole.tar.gz", {f"{i}.bin": content[i:] + bytes([i] * i) for i in range(50)}
    ).read_bytes()
    for name, data in (("half.tar.gz", whole), ("half.tar", gzip.decompress(whole))):
        archive = tmp_path / name
        archive.write_bytes(data[: int(len(data) * keep)])
        with pytest.raises(DataError, match=rf"{name}: the archive is damaged \(.*\); get it again"):
            unpacked(archive)
    assert left(cache) == []


def test_garbage_within_an_archive_is_damage(tmp_path, cache):
    archive = tar_of(tmp_path / "a.tar.gz", {"1.bin": bytes(range(256)) * 400})
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    archive.write_bytes(bytes(data))
    with pytest.raises(DataError, match="is damaged"):
        unpacked(archive)
    assert left(cache) == []


def test_a_file_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(
        DataError, match=r"a.txt: expected a .tar, .tar.gz or .zip archive; give one, or the unpacked folder"
    ):
        tiny_imagenet(tmp_path / "a.txt")
