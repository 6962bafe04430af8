from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from openradial.data import sources
from openradial.data.examples import Examples
from openradial.data.sources import DataSource
from openradial.errors import DataError, OptionError
from openradial.fitting import FitOptions, prepare
from openradial.fitting.preparation import _mean_and_std
from tests.fitting.fit_data import write_images, write_table


@pytest.fixture
def options(tmp_path):
    return FitOptions(str(write_table(tmp_path / "t.csv", rows=240)), label="kind", novel="c2")


def test_no_example_serves_twice(options):
    prepared = prepare(replace(options, calibration="split"))
    parts = [prepared.train, prepared.combination, prepared.calibration, prepared.report]
    rows = torch.cat([part.inputs for part in parts])
    assert len(rows) == 160
    assert len(torch.unique(rows, dim=0)) == 160
    assert prepared.counts() == {"train": 88, "combination": 24, "calibration": 24, "report": 24, "novel": 80}


def test_inputs_are_learnt_from_the_training_part_alone(options):
    prepared = prepare(options)
    numbers = prepared.train.inputs[:, :2].double()
    torch.testing.assert_close(numbers.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-5, rtol=0)
    assert [feature.name for feature in prepared.inputs.encoder.features] == ["length", "width", "colour"]
    assert prepared.inputs.encoder.features[2].categories == ("green", "red")  # blue is that of the novel class


def test_a_test_part_is_used_for_the_report_alone(tmp_path):
    write_images(tmp_path / "set" / "train", each=40)
    write_images(tmp_path / "set" / "test", each=5, seed=1)
    prepared = prepare(FitOptions(str(tmp_path / "set"), novel="ring", size=8))
    counts = prepared.counts()
    assert counts["train"] + counts["combination"] + counts["calibration"] == 80
    assert (counts["report"], counts["novel"]) == (10, 5)


def test_a_test_part_must_have_the_classes_of_the_training_part(tmp_path):
    write_images(tmp_path / "set" / "train", each=30)
    write_images(tmp_path / "set" / "test", classes=("ring",), each=2)
    with pytest.raises(DataError, match="2 of 3 classes: bar, dot"):
        prepare(FitOptions(str(tmp_path / "set"), novel="ring"))


def test_images_are_normalised_by_the_known_training_data():
    prepared = prepare(FitOptions("digits", known="random:6"))
    x = torch.cat([x for x, _ in prepared.batches(prepared.train, 64, shuffle=True).epoch(0)])
    assert x.mean().item() == pytest.approx(0, abs=1e-3)
    assert x.std().item() == pytest.approx(1, abs=1e-3)


def test_means_are_those_of_all_rows_without_their_padding():
    inputs = torch.tensor([[[1.0], [3.0]], [[5.0], [float("nan")]]])
    mean, std = _mean_and_std(inputs, (0, 1))
    assert (mean, std) == ((3.0,), (pytest.approx((8 / 3) ** 0.5),))
    pixels = torch.randint(256, (3000, 2, 3, 3), dtype=torch.uint8)  # more than one chunk
    mean, std = _mean_and_std(pixels, (0, 2, 3))
    values = pixels.double() / 255
    np.testing.assert_allclose(mean, values.mean((0, 2, 3)))
    np.testing.assert_allclose(std, values.std((0, 2, 3), correction=0))


def test_a_broken_image_stops_or_is_left_out(tmp_path):
    root = write_images(tmp_path / "set", each=30)
    (root / "bar" / "003.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"003\.png"):
        prepare(FitOptions(str(root), size=8))
    prepared = prepare(FitOptions(str(root), size=8, skip_broken=True))
    assert sum(prepared.counts().values()) == 89


def test_training_images_are_shifted_and_flipped_and_others_are_not(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(40):
            pixels = np.random.default_rng(i).integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    prepared = prepare(FitOptions(str(tmp_path), size=32, cutout=8))
    assert (prepared.network.shift, prepared.network.flip, prepared.network.cutout) == (2, True, 8)

    def epoch(number, **options):
        return torch.cat([x for x, _ in prepared.batches(prepared.train, 16, **options).epoch(number)])

    assert torch.equal(epoch(0), epoch(1))
    first, second = (epoch(n, shuffle=True).sum((1, 2, 3)).sort().values for n in (0, 1))
    assert not torch.equal(first, second)


def test_at_most_so_many_examples_are_kept_as_references(options, monkeypatch):
    monkeypatch.setattr("openradial.fitting.preparation.REFERENCES", 40)
    prepared = prepare(options)
    assert len(prepared.references) == pytest.approx(40, abs=2)
    assert set(prepared.references.labels.tolist()) == {0, 1}


def test_tokens_are_refused():
    words = Examples(torch.randint(2, 50, (120, 9)), torch.arange(120) % 2, ("a", "b"))
    with pytest.raises(OptionError, match="words holds tokens; give the texts"):
        prepare(FitOptions("words"), DataSource("words", "texts", words))


@pytest.mark.parametrize(
    ("data", "values", "message"),
    [
        ("digits", {"size": 28}, "size is for folders of images; digits has its own"),
        ("spiral", {"flip": True}, "flip is for images, and spiral holds points"),
        ("digits", {"known": "six"}, "there is no class 'six'"),
        ("no/where", {}, "no/where"),
    ],
)
def test_data_that_cannot_be_prepared_are_refused(data, values, message):
    with pytest.raises((OptionError, DataError), match=message):
        prepare(FitOptions(data, **values))


def rows_of(part):
    return {tuple(row) for row in part.inputs.tolist()}


def test_copies_stay_in_one_part_and_are_noted(tmp_path):
    lines = write_table(tmp_path / "t.csv", rows=150).read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*lines, *lines[1:61]]) + "\n")
    prepared = prepare(FitOptions(str(tmp_path / "t.csv"), label="kind", calibration="split"))
    assert "duplicates: 60 of 210 examples" in prepared.notes[0]
    parts = [rows_of(getattr(prepared, name)) for name in ("train", "combination", "calibration", "report")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 150


def test_rows_of_one_group_stay_in_one_part(tmp_path):
    lines = write_table(tmp_path / "t.csv", rows=240).read_text().splitlines()
    grouped = [f"{lines[0]},patient", *(f"{line},p{i // 4}" for i, line in enumerate(lines[1:]))]
    (tmp_path / "t.csv").write_text("\n".join(grouped) + "\n")
    source = sources.open(tmp_path / "t.csv", label="kind")
    prepared = prepare(FitOptions(str(tmp_path / "t.csv"), label="kind", group="patient", calibration="split"), source)
    assert "patient" not in prepared.inputs.columns
    patients = source.train.columns["patient"].to_list()
    encoded = [tuple(row) for row in prepared.inputs.prepare(source.train).tolist()]
    parts = [rows_of(getattr(prepared, name)) for name in ("train", "combination", "calibration", "report")]
    seen = [{patient for patient, row in zip(patients, encoded, strict=True) if row in part} for part in parts]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 60
    with pytest.raises(OptionError, match="no column 'patent' to group by; did you mean 'patient'"):
        prepare(FitOptions(str(tmp_path / "t.csv"), label="kind", group="patent"))
    with pytest.raises(OptionError, match="group names a column of a table, and digits holds images"):
        prepare(FitOptions("digits", group="patient"))


@pytest.mark.parametrize("name", [lambda k: str(2**53 + k), lambda k: str(k) if k % 2 else f"A{k}"])
def test_large_or_mixed_numbers_of_groups_stay_different(tmp_path, name):
    lines = write_table(tmp_path / "t.csv", rows=240).read_text().splitlines()
    grouped = [f"{lines[0]},patient", *(f"{line},{name(i // 4)}" for i, line in enumerate(lines[1:]))]
    (tmp_path / "t.csv").write_text("\n".join(grouped) + "\n")
    prepared = prepare(FitOptions(str(tmp_path / "t.csv"), label="kind", group="patient", calibration="cross"))
    assert len(torch.unique(prepared.groups)) == 60


def test_copies_alone_cannot_be_calibrated_on(tmp_path):
    lines = [f"{k},{k % 2},c{k}" for k in range(3) for _ in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,kind", *lines]) + "\n")
    with pytest.raises(DataError, match="19 different examples must be held out for calibration"):
        prepare(FitOptions(str(tmp_path / "t.csv"), label="kind", calibration="split"))


def test_a_table_in_closed_form_holds_nothing_out_up_to_a_number_of_examples(options, monkeypatch):
    prepared = prepare(options)
    assert (prepared.method, prepared.network.name) == ("closed-form", "features")
    assert prepared.counts() == {"train": 160, "novel": 80}
    assert (prepared.calibration, prepared.combination, prepared.report) == (None, None, None)
    assert prepare(replace(options, calibration="split")).counts()["calibration"] == 24
    assert prepare(replace(options, method="gradient")).counts()["calibration"] == 24
    monkeypatch.setattr("openradial.fitting.preparation.MOST_CROSS", 159)
    assert prepare(options).counts()["calibration"] == 24
    assert prepare(replace(options, calibration="cross")).counts() == {"train": 160, "novel": 80}


def test_groups_of_the_training_part_are_copies_and_rows_of_one_value(tmp_path):
    lines = write_table(tmp_path / "t.csv", rows=120).read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*lines, *lines[1:31]]) + "\n")
    options = FitOptions(str(tmp_path / "t.csv"), label="kind", novel="c2")
    prepared = prepare(options)
    rows = [tuple(row) for row in prepared.train.inputs.tolist()]
    by_row = {row: {g for other, g in zip(rows, prepared.groups.tolist(), strict=True) if other == row} for row in rows}
    assert all(len(groups) == 1 for groups in by_row.values())
    assert len(prepared.groups) == len(rows) == 100
    assert len(torch.unique(prepared.groups)) == 80
    assert len(prepare(replace(options, calibration="split")).groups) < 100


def test_closed_form_takes_rows_of_numbers():
    assert prepare(FitOptions("spiral", method="closed-form")).num_features == 2
    with pytest.raises(
        OptionError, match="closed form needs rows of numbers, such as a table, and digits holds images"
    ):
        prepare(FitOptions("digits", method="closed-form"))


@pytest.mark.parametrize("augment", [0.0, 1.0])
def test_training_images_are_changed_at_random_only_with_augmentation(tmp_path, augment):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(40):
            pixels = np.random.default_rng(i).integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    prepared = prepare(FitOptions(str(tmp_path), size=32, flip=False, shift=0, augment=augment))
    plain, changed = (
        torch.cat([x for x, _ in prepared.batches(prepared.train, 16, **options).epoch(0)]).sum((1, 2, 3)).sort().values
        for options in ({}, {"shuffle": True})
    )
    assert torch.allclose(plain, changed, atol=1e-2) == (augment == 0)
