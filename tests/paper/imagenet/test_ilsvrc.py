import re

import numpy as np
import pytest
from scipy.io import savemat

from openradial.data import compare_classes
from openradial.errors import DataError
from paper.imagenet.ilsvrc import ilsvrc
from paper.imagenet.ilsvrc_classes import wnids

A, B, C = wnids()[:3]
TRAIN = {f"train/{wnid}/{wnid}_{i}.JPEG": b"x" for wnid in (A, B, C) for i in range(2)}
VAL = [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, 5)]
FLAT = {f"val/{name}": b"x" for name in VAL}
LABELS = [B, A, C, A]


def tree(root, files):
    """Write files below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def test_class_folders_are_read_and_a_subset_is_noted(tmp_path):
    root = tree(tmp_path, TRAIN | {f"val/{wnid}/1.JPEG": b"x" for wnid in (A, B, C)})
    train, val = ilsvrc(root), ilsvrc(root, "val")
    compare_classes(train, val)
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert val.labels.tolist() == [0, 1, 2]
    note = "  note: 3 of the 1000 classes of ILSVRC-2012: labels differ from published models"
    assert note in str(train.report)


def test_all_classes_need_no_note(tmp_path):
    root = tree(tmp_path, {f"train/{wnid}/1.JPEG": b"" for wnid in wnids()})
    folder = ilsvrc(root)
    assert folder.labels.tolist() == list(range(1000))
    assert folder.report.notes == ()


def test_folders_that_are_no_class_are_noted(tmp_path):
    report = ilsvrc(tree(tmp_path, {"train/cats/1.JPEG": b"x"})).report
    assert "1 folders are not classes of ILSVRC-2012, such as cats" in str(report)


def kaggle(names, labels):
    rows = [
        f"{name.removesuffix('.JPEG')},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for name, wnid in zip(names, labels, strict=True)
    ]
    return "\n".join(["ImageId,PredictionString", *rows]).encode()


def devkit(folder, labels):
    """Ground truth as numbers and the table that translates them, in the order of the kit, not of the wnids."""
    numbers = {C: 1, A: 2, B: 3}
    folder.mkdir(parents=True)
    lines = "\n".join(str(numbers[wnid]) for wnid in labels)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(lines + "\n")
    table = np.array([(n, wnid) for wnid, n in numbers.items()], dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")])
    savemat(folder / "meta.mat", {"synsets": table})


def with_kaggle_list(root):
    base = "ILSVRC/Data/CLS-LOC/"
    tree(root, {base + name: content for name, content in (TRAIN | FLAT).items()})
    tree(root, {"LOC_val_solution.csv": kaggle(VAL, LABELS)})


def with_plain_list(root):
    lines = [f"{name} {wnid}" for name, wnid in zip(VAL, LABELS, strict=True)]
    tree(root, TRAIN | FLAT | {"val_annotations.txt": "\n".join(lines).encode()})


def with_devkit(root):
    tree(root, TRAIN | FLAT)
    devkit(root / "ILSVRC2012_devkit_t12" / "data", LABELS)


@pytest.mark.parametrize("write", [with_kaggle_list, with_plain_list, with_devkit])
def test_flat_validation_images_get_their_labels_from_a_list(tmp_path, write):
    write(tmp_path)
    val = ilsvrc(tmp_path, "val")
    assert val.classes == (A, B, C)
    assert val.labels.tolist() == [1, 0, 2, 0]
    compare_classes(ilsvrc(tmp_path), val)


def test_validation_without_training_has_the_classes_of_its_list(tmp_path):
    tree(tmp_path, FLAT | {"LOC_val_solution.csv": kaggle(VAL, LABELS)})
    assert ilsvrc(tmp_path, "val").classes == (A, B, C)


def test_chosen_classes_are_kept_and_others_counted(tmp_path):
    with_plain_list(tmp_path)
    val = ilsvrc(tmp_path, "val", classes=[C, B])
    assert val.labels.tolist() == [1, 0]
    assert len(val.report.findings["of another class"]) == 2
    assert ilsvrc(tmp_path, classes=[C]).labels.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("files", "split", "message"),
    [
        ({}, "train", "{root} holds no folder train of ILSVRC-2012; expected train/ there or in ILSVRC/Data/CLS-LOC/"),
        (
            {"ILSVRC2012_img_train.tar": b""},
            "train",
            "{root} holds no folder train of ILSVRC-2012; unpack ILSVRC2012_img_train.tar first",
        ),
        (
            FLAT,
            "val",
            "{root}/val has no class folders, and no list of labels is in {root}: expected LOC_val_solution.csv, "
            "val_annotations.txt with lines 'file wnid', or "
            "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt",
        ),
        (
            FLAT | {"val.txt": f"{VAL[0]} 65".encode()},
            "val",
            "{root}/val.txt, line 1: expected 'file wnid' such as 'ILSVRC2012_val_00000001.JPEG n01751748', got "
            "'ILSVRC2012_val_00000001.JPEG 65'",
        ),
        (
            FLAT | {"LOC_val_solution.csv": b"ImageId,Label\nx,y\n"},
            "val",
            "{root}/LOC_val_solution.csv: expected the columns ImageId and PredictionString with a wnid in every row; "
            "get the file again",
        ),
        (
            FLAT | {"data/ILSVRC2012_validation_ground_truth.txt": b"1\n"},
            "val",
            "{root}/data has ILSVRC2012_validation_ground_truth.txt but no meta.mat; unpack the complete "
            "development kit there",
        ),
    ],
)
def test_a_copy_that_is_not_as_expected_names_the_way_out(tmp_path, files, split, message):
    with pytest.raises(DataError, match=f"^{re.escape(message.format(root=tmp_path))}$"):
        ilsvrc(tree(tmp_path, files), split)


def test_a_number_that_the_devkit_does_not_know_is_named(tmp_path):
    with_devkit(tmp_path)
    (tmp_path / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt").write_text("99\n")
    with pytest.raises(DataError, match=r"ground_truth.txt holds 99, which is not an ILSVRC2012_ID of meta.mat"):
        ilsvrc(tmp_path, "val")
