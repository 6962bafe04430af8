import numpy as np
import pytest
import torch

from benchmarks.comparison.protocols import all_known, class_split, left_out, read_novel, shortened
from openradial.data import load
from openradial.errors import DataError, OptionError


def rows(inputs):
    return {row.numpy().tobytes() for row in inputs}


def test_the_parts_of_a_protocol_have_nothing_in_common():
    protocol = class_split("digits", 0)
    parts = [protocol.train.inputs, protocol.calibration.inputs, protocol.test.inputs, protocol.novel["other classes"]]
    seen = [rows(part) for part in parts]
    assert all(not a & b for i, a in enumerate(seen) for b in seen[:i])
    assert len(protocol.train) > len(protocol.calibration) > 100


def test_novel_inputs_are_test_examples_of_the_other_classes():
    protocol = class_split("digits", 3)
    test = load("digits", "test")
    others = [i for i, name in enumerate(test.classes) if name not in protocol.train.classes]
    expected = torch.cat([test.inputs[test.labels == i] for i in others])
    assert len(others) == 4
    assert rows(expected) == rows(protocol.novel["other classes"])


def test_a_recipe_is_chosen_without_test_data_and_without_novel_classes():
    outer, inner = class_split("digits", 1), left_out("digits", 1)
    parts = [inner.train.inputs, inner.calibration.inputs, inner.test.inputs, inner.novel["left-out classes"]]
    seen = [rows(part) for part in parts]
    assert all(not a & b for i, a in enumerate(seen) for b in seen[:i])
    assert set.union(*seen) == rows(outer.train.inputs)
    assert len(inner.train.classes) == 4


def test_five_splits_differ_and_stay():
    drawn = [class_split("digits", seed).train.classes for seed in range(5)]
    assert len(set(drawn)) == 5
    assert drawn[0] == class_split("digits", 0).train.classes


def test_a_glance_has_fewer_inputs_of_every_class():
    whole = class_split("digits", 0)
    few = shortened(whole, 30)
    assert (len(few.test), len(few.novel["other classes"])) == (30, 30)
    assert set(few.test.labels.tolist()) == set(range(6))
    assert rows(few.novel["other classes"]) <= rows(whole.novel["other classes"])
    assert few.train is whole.train
    assert len(shortened(whole, 10**6).test) == len(whole.test)


def test_normalisation_is_that_of_the_training_part():
    protocol = class_split("digits", 0)
    x = protocol.normalise(protocol.train.inputs, torch.Generator())
    assert x.mean().item() == pytest.approx(0, abs=1e-4)
    assert x.std().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("suffix", [".npz", ""])
def test_a_novel_set_comes_from_a_file(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 17, (5, 8, 8), dtype=np.uint8)
    path = tmp_path / f"novel{suffix}"
    if suffix:
        np.savez(path, labels=np.zeros(5), images=pixels)
    else:
        path.write_bytes(b"\0\0\x08\x03" + np.array(pixels.shape, ">u4").tobytes() + pixels.tobytes())
    protocol = all_known("digits", {"mine": path})
    assert torch.equal(protocol.novel["mine"], torch.from_numpy(pixels).unsqueeze(1))
    assert protocol.num_classes == 10


def test_files_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none.npz: there is no such file"):
        read_novel(tmp_path / "none.npz", (1, 8, 8))
    np.savez(tmp_path / "wide.npz", images=np.zeros((5, 9, 9), np.uint8))
    with pytest.raises(
        DataError, match=r"uint8 images of shape \(n, 1, 8, 8\), .*got torch.uint8 of shape \(5, 1, 9, 9\)"
    ):
        read_novel(tmp_path / "wide.npz", (1, 8, 8))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match="NPZ"):
        read_novel(tmp_path / "broken.npz", (1, 8, 8))
    np.savez(tmp_path / "objects.npz", images=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="holds an array of Python objects, which could run code"):
        read_novel(tmp_path / "objects.npz", (1, 8, 8))


def test_a_set_whose_classes_are_all_known_needs_a_novel_set():
    with pytest.raises(OptionError, match="all classes of digits are known: name a novel set, as in --novel NAME=FILE"):
        all_known("digits")
