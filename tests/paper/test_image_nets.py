import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from openradial.data import Normalise
from openradial.heads import RadialHead, SoftmaxHead
from openradial.metrics import ece
from paper import Plan
from paper.image_nets import (
    CIFAR,
    CIFAR_SMALL,
    DIGITS,
    TINY_IMAGENET,
    calibrate,
    example_parts,
    image_set,
    start_near_zero,
    tiny_imagenet_parts,
)
from paper.sup4 import moving_average, noise, window_of

numbers = st.lists(st.floats(-100, 100), min_size=1, max_size=30)


def test_tiny_imagenet_is_used_where_its_folder_is_given(tmp_path):
    given_folder = {"tiny_imagenet": str(tmp_path)}
    assert image_set(Plan(tmp_path, "full", options=given_folder)) is TINY_IMAGENET
    assert image_set(Plan(tmp_path, "full")) is CIFAR
    assert image_set(Plan(tmp_path, "quick", options=given_folder)) is CIFAR_SMALL


def test_a_small_set_is_normalised_by_its_known_training_images():
    parts = example_parts(DIGITS, DIGITS.training)
    x = torch.cat([x for x, _ in parts.train.epoch(0)])
    assert x.mean() == pytest.approx(0, abs=1e-5)
    assert x.std() == pytest.approx(1, abs=1e-3)
    assert parts.classes == {"known_classes": 6, "novel_classes": 4}
    sizes = [len(part.labels) for part in (parts.train, parts.validation, parts.known, parts.novel)]
    assert sizes[1] == pytest.approx(0.1 * (sizes[0] + sizes[1]), abs=6)
    assert sizes[2] + sizes[3] == 355


def test_artifacts_of_tiny_imagenet_are_novel(tmp_path):
    animals, artifacts = ("n01443537", "n01629819"), ("n02769748", "n02814533")
    for wnid in animals + artifacts:
        for part, count in (("train", 10), ("val", 3)):
            folder = tmp_path / part / wnid
            folder.mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (8, 8), (40 * i % 255, 0, 0)).save(folder / f"{i}.JPEG")
    parts = tiny_imagenet_parts(str(tmp_path), TINY_IMAGENET.training, Normalise(0.5, 0.25))
    assert parts.classes == {"known_classes": 2, "novel_classes": 2}
    sizes = [len(part.labels) for part in (parts.train, parts.validation, parts.known, parts.novel)]
    assert sizes == [18, 2, 6, 6]
    x, y = next(iter(parts.train.epoch(0)))
    assert x.shape == (18, 3, 64, 64)
    assert set(y.tolist()) == {0, 1}


def test_a_last_layer_that_starts_near_zero_puts_outputs_between_the_prototypes():
    torch.manual_seed(0)
    net = start_near_zero(DIGITS.build(6))
    assert net(10 * torch.rand(20, 64)).abs().max() < 0.1


def test_figure_7_counts_every_image_once(tiny_record):
    found = tiny_record("fig7")["numbers"]
    assert (found["known_classes"], found["novel_classes"]) == (6, 4)
    for runs in found["heads"].values():
        parts = runs[0]["histograms"]
        assert sum(map(sum, parts.values())) == 355  # all test digits
        right, wrong = sum(parts["right"]), sum(parts["wrong"])
        assert runs[0]["top_1"] == pytest.approx(right / (right + wrong))


def test_figure_7_draws_known_above_novel_for_each_head(tiny_figure):
    found, figure = tiny_figure("fig7")
    titles = [ax.get_title() for ax in figure.axes]
    assert "softmax" in titles[0]
    assert "radial" in titles[1]
    novel = found["heads"]["radial"][0]["histograms"]["novel"]
    drawn = figure.axes[3].patches[0].get_data().values
    assert drawn == pytest.approx([100 * count / sum(novel) for count in novel])
    assert found["data"] in figure.get_suptitle()


@pytest.mark.parametrize("head", [RadialHead(3), SoftmaxHead(3)], ids=["radial", "softmax"])
def test_calibration_lowers_the_calibration_error_and_changes_no_class(head):
    noise_of = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    o = 3 * torch.eye(3)[y] + 2 * torch.randn(600, 3, generator=noise_of)
    calibrated, facts = calibrate(head, o, y)
    assert torch.equal(calibrated.predict(o), head.predict(o))
    errors = [ece(each.probs(o).numpy(), y.numpy(), head.predict(o).numpy()) for each in (head, calibrated)]
    assert errors[1] < errors[0]
    assert all(value > 0 for value in facts.values())


@given(values=numbers, window=st.integers(1, 10))
def test_the_moving_average_is_that_of_a_plain_loop(values, window):
    expected = []
    for place in range(len(values)):
        last = values[max(0, place - window + 1) : place + 1]
        expected.append(sum(last) / len(last))
    assert moving_average(values, window) == pytest.approx(expected, abs=1e-9)


def test_noise_is_the_deviation_from_the_moving_average_in_the_second_half():
    values = [float(np.sin(place) + place % 3) for place in range(80)]
    window = 4
    rest = []
    for place in range(40, 80):
        last = values[place - window + 1 : place + 1]
        rest.append(values[place] - sum(last) / window)
    mean = sum(rest) / len(rest)
    assert window_of(values) == window
    assert noise(values) == pytest.approx(math.sqrt(sum((each - mean) ** 2 for each in rest) / len(rest)))


def test_noise_has_the_unit_of_the_loss():
    values = [1.0, 3.0, 2.0, 5.0, 4.0, 1.0]
    assert noise([5 * value for value in values]) == pytest.approx(5 * noise(values))
    assert noise([2.0] * 10) == pytest.approx(0, abs=1e-12)


def test_every_length_of_the_prototypes_has_its_accuracies(tiny_record):
    found = tiny_record("sup4")["numbers"]
    assert list(found["mnist"]) == ["1", "2", "5", "50", "100"]
    assert all(len(each["accuracy"]) == len(each["noise"]) == 2 for each in found["mnist"].values())
    assert list(found["curves"]) == ["1", "5"]
    assert len(found["curves"]["1"]["loss"]) == len(found["curves"]["1"]["top_5"])


def test_length_1_is_the_network_of_table_1(tiny_record):
    same = tiny_record("tab1")["numbers"]["mnist"]["reaching"]["radial"]
    assert tiny_record("sup4")["numbers"]["mnist"]["1"]["accuracy"] == same


def test_training_curves_are_drawn_with_their_moving_average(tiny_figure):
    found, figure = tiny_figure("sup4")
    losses = found["curves"]["5"]["loss"]
    plain, smooth = figure.axes[1].lines
    assert plain.get_ydata() == pytest.approx(losses)
    assert smooth.get_ydata() == pytest.approx(moving_average(losses, window_of(losses)))
    assert "a = 5" in figure.axes[1].get_title()
    assert [line.get_label() for line in figure.axes[2].lines][1] == "top-1, moving average"
