import io

import numpy as np
import pytest
import torch
from PIL import Image

import openradial
from openradial.data import Examples, scan
from openradial.errors import OptionError
from openradial.fitting import FitOptions
from openradial.fitting.in_memory import as_source
from openradial.fitting.preparation import prepare
from tests.data.pictures import encoded, photo, tree
from tests.fitting.fit_data import write_table

ENCODER = """
from torch import nn

def encoder():
    return nn.Sequential(nn.AdaptiveAvgPool2d(6), nn.Flatten())
"""


@pytest.fixture(autouse=True)
def own_encoder(tmp_path, monkeypatch):
    """Features are the means of 6 x 6 parts of an image."""
    monkeypatch.setattr("openradial.encoders.cache.features_folder", lambda: tmp_path / "features")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mean_encoder.py").write_text(ENCODER)


def images(n, seed):
    """Random images of three classes: one red, one green, one blue."""
    made, labels = [], np.arange(n) % 3
    for i in range(n):
        pixels = np.asarray(photo(1000 * seed + i)) // 5 * 4
        pixels[:, :, labels[i]] += 50
        made.append(Image.fromarray(pixels))
    return made, labels


def compressed(image, quality):
    return Image.open(io.BytesIO(encoded(image, quality=quality)))


def smaller(image):
    return image.resize((36, 36), Image.Resampling.BICUBIC).resize((48, 48), Image.Resampling.BICUBIC)


def as_examples(made, labels):
    pixels = torch.from_numpy(np.stack([np.asarray(each) for each in made])).permute(0, 3, 1, 2)
    return Examples(pixels.contiguous(), torch.from_numpy(labels), ("a", "b", "c"))


def copied(n, seed):
    """Each image three times: as it is, compressed, and resized."""
    made, labels = images(n, seed)
    every = [*made, *(compressed(each, 90) for each in made), *(smaller(each) for each in made)]
    return as_examples(every, np.tile(labels, 3))


def test_the_promised_rate_holds_with_near_duplicates_and_fails_where_they_are_separated():
    train, new = copied(150, seed=0), as_examples(*images(900, seed=1))
    rates = {}
    for near in (False, True):
        options = {"encoder": "mean_encoder:encoder", "size": 32, "baseline": False, "show_progress": False}
        model = openradial.fit(train, near_duplicates=near, **options)
        names = model.predict(list(new.inputs.permute(0, 2, 3, 1).numpy())).names
        rates[near] = names.count("unknown") / len(names)
        assert ("near-duplicates: 300 of 450 images; no split separates them" in model.report.notes) == near
    assert rates[False] > 0.15
    assert rates[True] < 0.08


@pytest.mark.parametrize("in_memory", [True, False])
def test_resized_and_compressed_copies_in_files_stay_in_one_part(tmp_path, monkeypatch, in_memory):
    made, labels = images(60, seed=2)
    files = {}
    for i, image in enumerate(made):
        files |= {f"{labels[i]}/{i}.png": encoded(image, "PNG"), f"{labels[i]}/{i}b.jpg": encoded(image, quality=90)}
        files[f"{labels[i]}/{i}c.jpg"] = encoded(image.resize((70, 70), Image.Resampling.BICUBIC), quality=90)
    folder = scan(tree(tmp_path / "images", files))
    if not in_memory:
        monkeypatch.setattr("openradial.data.sources.free_memory", lambda: 1000)
    options = FitOptions("images", near_duplicates=True, size=32, method="gradient")
    prepared = prepare(options, as_source(folder))
    assert "near-duplicates: 120 of 180 images; no split separates them" in prepared.notes
    assert prepared.groups.unique(return_counts=True)[1].tolist() == [3] * (len(prepared.train) // 3)
    if not in_memory:
        parts = [getattr(prepared, name).paths for name in ("train", "combination", "calibration", "report")]
        stems = [{path.rpartition("/")[2].rstrip("bcjpng.") for path in part} for part in parts]
        assert sum(map(len, stems)) == len(set.union(*stems)) == 60


def test_broken_images_are_left_out_of_the_groups(tmp_path):
    files = {f"{k}/{i}.jpg": encoded(photo(100 * k + i, 40)) for k in range(2) for i in range(30)}
    files |= {"0/00.jpg": b"no image", "0/copy.jpg": encoded(photo(0, 40), quality=60)}
    root = tree(tmp_path / "images", files)
    options = {"encoder": "mean_encoder:encoder", "size": 32, "baseline": False, "show_progress": False}
    model = openradial.fit(root, near_duplicates=True, skip_broken=True, **options)
    assert any(note.startswith("left out, broken: 1") for note in model.report.notes)
    assert "near-duplicates: 1 of 61 images; no split separates them" in model.report.notes


def test_near_duplicates_are_for_images(tmp_path):
    path = write_table(tmp_path / "t.csv", rows=90)
    with pytest.raises(OptionError, match=r"near_duplicates is for images, and .*t\.csv holds table; leave it out"):
        openradial.fit(path, label="kind", near_duplicates=True)
    with pytest.raises(OptionError, match="near_duplicates must be true or false, got 3"):
        FitOptions("digits", near_duplicates=3)
    with pytest.raises(OptionError, match="group names a column of a table"):
        openradial.fit(copied(40, seed=0), near_duplicates=True, group="who", encoder="mean_encoder:encoder", size=32)
