import errno
import json
import os
import re
from pathlib import Path

import pytest

from openradial.data import Split, random_split, scan
from openradial.errors import DataError
from paper.imagenet.ilsvrc_classes import ilsvrc_classes, wnids
from paper.imagenet.link_trees import split_ilsvrc

FISH, SHARK, TEAPOT = "n01440764", "n01484850", "n04398044"
RULE = "not:n00021939"


def written(root, *parts, classes=(FISH, SHARK, TEAPOT)):
    """Class folders with one image each."""
    for part in parts:
        for wnid in classes:
            (root / part / wnid).mkdir(parents=True)
            (root / part / wnid / f"{wnid}_1.JPEG").write_bytes(b"image")
    return root


def lists(out):
    """The split in the class lists of a folder."""
    return Split(*((out / name).read_text().split() for name in ("known.txt", "novel.txt")))


def links(out):
    return {str(path.relative_to(out)): os.readlink(path) for path in sorted(out.rglob("*")) if path.is_symlink()}


def test_class_lists_say_what_is_known(tmp_path):
    root, out = written(tmp_path / "data", "train", "val"), tmp_path / "split"
    result = split_ilsvrc(root, RULE, out=out)
    assert result.split == lists(out) == Split((FISH, SHARK), (TEAPOT,))
    assert (result.counts, result.links, len(result.absent)) == ({"train": 3, "val": 3}, 0, 997)
    assert sorted(path.name for path in out.iterdir()) == ["known.txt", "novel.txt", "split.json"]
    facts = json.loads((out / "split.json").read_text())
    assert (facts["rule"], facts["root"], facts["classes found"]) == (RULE, str(root), 3)


def test_link_trees_lead_to_the_images_and_can_be_moved(tmp_path):
    root, out = written(tmp_path / "data", "train", "val"), tmp_path / "split"
    assert split_ilsvrc(root, RULE, out=out, links=True).links == 6
    assert links(out) == {
        f"{side}/{part}/{wnid}": str(root / part / wnid)
        for part in ("train", "val")
        for side, wnid in (("known", FISH), ("known", SHARK), ("novel", TEAPOT))
    }
    out.rename(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "novel" / "val" / TEAPOT / f"{TEAPOT}_1.JPEG").read_bytes() == b"image"


@pytest.mark.parametrize("base", ["ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC", "."])
def test_the_usual_layouts_are_found(tmp_path, base):
    root = tmp_path / "data"
    written(root / base, "train")
    split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert links(tmp_path / "split")[f"known/train/{FISH}"] == str(root / base / "train" / FISH)


def test_class_folders_may_lie_in_the_root_itself(tmp_path):
    root = written(tmp_path / "data", ".")
    result = split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert result.counts == {"": 3}
    assert sorted(links(tmp_path / "split")) == [f"known/{FISH}", f"known/{SHARK}", f"novel/{TEAPOT}"]


def test_a_relative_root_gives_links_that_lead_there(tmp_path, monkeypatch):
    written(tmp_path / "data", "train")
    monkeypatch.chdir(tmp_path)
    split_ilsvrc("data", RULE, out="deep/down/split", links=True)
    assert (tmp_path / "deep/down/split/known/train" / FISH / f"{FISH}_1.JPEG").exists()


def test_validation_images_side_by_side_are_linked_one_by_one(tmp_path):
    root, out = written(tmp_path / "data", "ILSVRC/Data/CLS-LOC/train"), tmp_path / "split"
    val = root / "ILSVRC/Data/CLS-LOC/val"
    val.mkdir()
    rows = {f"ILSVRC2012_val_0000000{i}": wnid for i, wnid in enumerate((TEAPOT, FISH, TEAPOT), start=1)}
    for name in rows:
        (val / f"{name}.JPEG").write_bytes(b"image")
    lines = [f"{name},{wnid} 1 2 3 4\n" for name, wnid in rows.items()]
    (root / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(lines))
    result = split_ilsvrc(root, RULE, out=out, links=True)
    assert (result.counts, result.links, result.left_out) == ({"train": 3, "val": 2}, 6, ())
    for name, wnid in rows.items():
        side = "novel" if wnid == TEAPOT else "known"
        assert links(out)[f"{side}/val/{wnid}/{name}.JPEG"] == str(val / f"{name}.JPEG")
    split_ilsvrc(root, RULE, out=out, links=True)
    assert len(links(out)) == 6


def test_tiny_imagenet_as_published_is_linked(tmp_path):
    root, out = written(tmp_path / "data", "train"), tmp_path / "split"
    (root / "val" / "images").mkdir(parents=True)
    (root / "val" / "images" / "val_0.JPEG").write_bytes(b"image")
    (root / "val" / "val_annotations.txt").write_text(f"val_0.JPEG\t{TEAPOT}\t0\t0\t62\t62\n")
    split_ilsvrc(root, RULE, out=out, links=True)
    assert links(out)[f"novel/val/{TEAPOT}/val_0.JPEG"] == str(root / "val" / "images" / "val_0.JPEG")


def test_what_is_absent_foreign_or_left_out_is_reported(tmp_path):
    root = written(tmp_path / "data", "train")
    (root / "train" / "not_a_class").mkdir()
    (root / "train" / "n00021939").mkdir()
    (root / "train" / "list.txt").write_text("a file is no folder")
    (root / "val").mkdir()
    (root / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"image")
    result = split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert [path.name for path in result.others] == ["n00021939", "not_a_class"]
    assert str(result) == (
        f"2 known and 1 novel classes in {tmp_path / 'split'}\n"
        "classes found: 3 in train; links: 3\n"
        "997 of 1000 classes have no images: n01443537, n01491361, n01494475 and 994 more\n"
        "2 folders are not classes of ILSVRC and were left out: "
        f"{root / 'train' / 'n00021939'}, {root / 'train' / 'not_a_class'}\n"
        f"left out: {root / 'val'} has no class folders, and no list of labels is in {root}: expected "
        "LOC_val_solution.csv, val_annotations.txt with lines 'file wnid', or "
        "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
    )


def test_a_class_without_validation_images_has_no_link_there(tmp_path):
    root = written(tmp_path / "data", "train")
    written(root, "val", classes=[FISH])
    split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert sum("/val/" in link for link in links(tmp_path / "split")) == 1


def test_all_1000_classes_give_478_and_522(tmp_path):
    root = tmp_path / "data"
    for wnid in wnids():
        (root / "train" / wnid).mkdir(parents=True)
    result = split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert (len(result.split.known), len(result.split.novel), result.absent) == (478, 522, ())
    assert len(list((tmp_path / "split/known/train").iterdir())) == 478
    result = split_ilsvrc(root, "random:100", seed=0, out=tmp_path / "split", links=True)
    assert result.split == random_split(wnids(), 100, seed=0)
    assert len(list((tmp_path / "split/novel/train").iterdir())) == 900


def test_an_earlier_result_is_replaced_and_its_targets_stay(tmp_path):
    root, out = written(tmp_path / "data", "train"), tmp_path / "split"
    split_ilsvrc(root, RULE, out=out, links=True)
    split_ilsvrc(root, "names:tench", out=out, links=False)
    assert lists(out) == Split((FISH,), (SHARK, TEAPOT))
    assert links(out) == {}
    assert len(list(root.rglob("*.JPEG"))) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "split"]


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "split").mkdir()
    split_ilsvrc(written(tmp_path / "data", "train"), RULE, out=tmp_path / "split")
    assert lists(tmp_path / "split").novel == (TEAPOT,)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda out: (out / "notes.txt").write_text("mine"), "notes.txt"),
        (lambda out: (out / "known" / "train" / "model.pt").write_text("mine"), "model.pt"),
        (lambda out: (out / "split.json").unlink(), ""),
        (lambda out: (out / "split.json").write_text("{}"), "split.json"),
        (lambda out: (out / "split.json").write_text("{"), "split.json"),
    ],
)
def test_a_folder_with_anything_else_is_refused_untouched(tmp_path, spoil, named):
    root, out = written(tmp_path / "data", "train"), tmp_path / "split"
    split_ilsvrc(root, RULE, out=out, links=True)
    spoil(out)
    before = sorted(out.rglob("*"))
    message = f"^{re.escape(str(out))} must be empty or hold an earlier split, got {named}.*; choose another folder$"
    with pytest.raises(DataError, match=message):
        split_ilsvrc(root, "names:tench", out=out)
    assert sorted(out.rglob("*")) == before


def test_out_must_not_be_a_file(tmp_path):
    (tmp_path / "split").write_text("mine")
    with pytest.raises(DataError, match=r"^out must be a folder, .*split is a file; choose another$"):
        split_ilsvrc(written(tmp_path / "data", "train"), RULE, out=tmp_path / "split")


def test_a_disk_without_links_says_so_and_leaves_nothing(tmp_path, monkeypatch):
    def fail(self, target, target_is_directory=False):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", fail)
    message = (
        "cannot make links in this folder (Operation not permitted); choose an out folder on a disk that can hold "
        "links, or omit the links and use the class lists"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        split_ilsvrc(written(tmp_path / "data", "train"), RULE, out=tmp_path / "split", links=True)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_failed_replacement_puts_the_old_result_back(tmp_path, monkeypatch):
    root, out = written(tmp_path / "data", "train"), tmp_path / "split"
    split_ilsvrc(root, RULE, out=out)
    rename = Path.rename

    def fail(self, target):
        if self.name == "fresh":
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no space left"):
        split_ilsvrc(root, "names:tench", out=out)
    assert lists(out).known == (FISH, SHARK)


def test_a_root_without_classes_names_the_layouts(tmp_path):
    (tmp_path / "data" / "train" / "cat").mkdir(parents=True)
    message = (
        f"{tmp_path / 'data'} must hold class folders named by wnids (n01440764, ...): expected them there, in train "
        "and val, or in ILSVRC/Data/CLS-LOC/train; unpack the class archives, or pass the folder above them"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        split_ilsvrc(tmp_path / "data", RULE, out=tmp_path / "split")
    with pytest.raises(DataError, match=r"^expected a folder with ILSVRC-2012 at .*nowhere; there is none$"):
        split_ilsvrc(tmp_path / "nowhere", RULE, out=tmp_path / "split")


def test_tiny_imagenet_gives_82_known_and_118_novel_classes(tmp_path):
    classes = Path(__file__).with_name("tiny_imagenet_wnids.txt").read_text().split()
    root = written(tmp_path / "data", "train", "val", classes=classes)
    result = split_ilsvrc(root, RULE, out=tmp_path / "split", links=True)
    assert (len(result.split.known), len(result.split.novel), result.links) == (82, 118, 400)


def test_the_table_knows_the_classes_of_these_tests():
    rows = {row.wnid: row for row in ilsvrc_classes()}
    assert [rows[wnid].artifact for wnid in (FISH, SHARK, TEAPOT)] == [False, False, True]


def test_the_folder_loader_reads_link_trees(tmp_path):
    root, out = written(tmp_path / "data", "train"), tmp_path / "split"
    split = split_ilsvrc(root, RULE, out=out, links=True).split
    assert scan(out / "known" / "train").classes == split.known
    assert len(scan(out / "novel" / "train")) == 1
