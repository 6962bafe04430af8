import re
import tarfile
import zipfile

import pytest

from openradial.data import compare_classes
from openradial.errors import DataError
from paper.imagenet.tiny_imagenet import tiny_imagenet, unpacked
from tests.data.pictures import jpeg, tree

WNIDS = ("n01443537", "n01629819")


def published(root):
    """Two classes of the set as it is published."""
    files = {f"train/{wnid}/images/{wnid}_{i}.JPEG": jpeg(64, 64, seed=i) for wnid in WNIDS for i in range(3)}
    files |= {f"train/{wnid}/{wnid}_boxes.txt": b"x" for wnid in WNIDS}
    files |= {f"val/images/val_{i}.JPEG": jpeg(64, 64, seed=i) for i in range(4)}
    rows = [f"val_{i}.JPEG\t{WNIDS[i % 2]}\t0\t32\t44\t62" for i in range(4)]
    files["val/val_annotations.txt"] = "\n".join(rows).encode()
    files["wnids.txt"] = "\n".join(reversed(WNIDS)).encode()
    files["words.txt"] = b"n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn01629819\tsalamander\n"
    files |= {"test/images/test_0.JPEG": jpeg()}
    return tree(root, files)


def test_the_published_layout_is_read(tmp_path):
    root = published(tmp_path)
    train, val = tiny_imagenet(root), tiny_imagenet(root, "val")
    compare_classes(train, val)
    assert train.classes == WNIDS
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert val.labels.tolist() == [0, 1, 0, 1]
    assert len(train.report.findings["not an image"]) == 2
    assert val.load(64).inputs.shape == (4, 3, 64, 64)


def test_the_sorted_layout_is_read(tmp_path):
    files = {f"{part}/{wnid}/{i}.JPEG": b"x" for part in ("train", "val") for wnid in WNIDS for i in range(2)}
    root = tree(tmp_path, files)
    assert tiny_imagenet(root).labels.tolist() == [0, 0, 1, 1]
    assert tiny_imagenet(root, "val").labels.tolist() == [0, 0, 1, 1]
    assert tiny_imagenet(root, "val", classes=WNIDS[1:]).labels.tolist() == [0, 0]


def test_the_folder_that_the_archive_makes_is_found(tmp_path):
    published(tmp_path / "tiny-imagenet-200")
    assert len(tiny_imagenet(tmp_path)) == 6


def test_validation_keeps_chosen_classes(tmp_path):
    val = tiny_imagenet(published(tmp_path), "val", classes=WNIDS[1:])
    assert val.labels.tolist() == [0, 0]
    assert val.report.findings["of another class"] == ["val_0.JPEG", "val_2.JPEG"]


def test_what_is_not_as_expected_is_named(tmp_path):
    message = (
        f"{tmp_path}: expected Tiny-ImageNet, the folders train and val in this folder or in "
        "tiny-imagenet-200/; give the folder or the archive tiny-imagenet-200.zip"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        tiny_imagenet(tmp_path)
    root = published(tmp_path / "tiny-imagenet-200")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG n01443537\n")
    with pytest.raises(
        DataError, match=r"val_annotations.txt, row 1: expected a file name, a tab and a wnid, got 'val"
    ):
        tiny_imagenet(root, "val")


@pytest.mark.parametrize("kind", ["tar.gz", "tar", "zip"])
def test_an_archive_is_read_as_its_folder_is(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
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
    (unpacked(archive) / "mark").write_text("unpacked once")
    assert (unpacked(archive) / "mark").exists()


def test_a_damaged_archive_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_CACHE", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "tiny.tar.gz", "w:gz") as tar:
        tar.add(published(tmp_path / "source"), "tiny-imagenet-200")
    content = (tmp_path / "tiny.tar.gz").read_bytes()
    for damaged in (content[: len(content) // 2], b"words"):
        (tmp_path / "tiny.tar.gz").write_bytes(damaged)
        with pytest.raises(DataError, match=r"tiny\.tar\.gz: expected a complete \.tar, \.tar\.gz or \.zip archive"):
            tiny_imagenet(tmp_path / "tiny.tar.gz")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
