import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from openradial.data import Examples
from openradial.heads import OpenMaxHead
from paper import Plan
from paper.rnn import METHODS, decided, known_count
from paper.sequence_tasks import TASKS


def task(size, name):
    return next(each for each in TASKS[size] if each.name == name)


def known(n=60, k=3):
    y = torch.arange(n) % k
    noise = torch.Generator().manual_seed(1)
    return Examples(torch.eye(k)[y] + 0.2 * torch.randn(n, k, generator=noise), y, tuple("abc"[:k]))


def test_a_quarter_half_and_three_quarters_of_15_topics_are_4_8_and_11():
    class Topics:
        classes = tuple("abcdefghijklmno")

    reuters = replace(task("full", "reuters"), data=lambda split: Topics)
    assert [known_count(reuters, share) for share in reuters.shares] == [4, 8, 11]


def test_few_examples_are_learned_in_as_many_steps_as_many(tmp_path):
    digits = replace(task("tiny", "digits"), steps=12)
    examples = digits.data("train")
    for count, epochs in ((640, 2), (64, 12)):
        some = examples.select(torch.arange(count))
        found = digits.net(Plan(tmp_path), "softmax", some, 0, f"{count}")
        assert len(found.steps["loss"]) == epochs * math.ceil(count / digits.training.batch_size) >= 12


def test_there_is_a_network_of_every_architecture_at_every_size():
    for tasks in TASKS.values():
        assert [each.architecture for each in tasks] == ["fully connected", "convolutional", "recurrent"]


def test_softmax_below_one_half_is_unknown():
    seen = known()
    x = torch.tensor([[5.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 9.0]])
    found = decided("softmax", nn.Identity(), seen, seen, x)["softmax, p < 0.5"]
    expected = []
    for row in x.tolist():
        probs = [math.exp(value) / sum(map(math.exp, row)) for value in row]
        expected.append(int(np.argmax(probs)) if max(probs) >= 0.5 else -1)
    assert found.tolist() == expected == [0, -1, 2]


def test_radial_below_one_half_is_unknown():
    seen = known()
    x = torch.tensor([[1.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.4, 0.0]])
    found = decided("radial", nn.Identity(), seen, seen, x)["radial, p < 0.5"]
    assert found.tolist() == [0, -1, 1]  # exp(-0.6) is 0.55


def test_openmax_rejects_where_the_unknown_is_more_probable_than_every_class():
    seen = known()
    x = torch.tensor([[1.0, 0.0, 0.0], [40.0, 39.0, 0.0]])
    head = OpenMaxHead(3).fit(seen.inputs, seen.labels)
    found = decided("softmax", nn.Identity(), seen, seen, x)["OpenMax"]
    for row, label in zip(x, found.tolist(), strict=True):
        unknown, classes = float(head.unknown_log_prob(row[None])), head.log_probs(row[None])[0].tolist()
        assert label == (int(np.argmax(classes)) if unknown <= max(classes) else -1)
    assert found[1] == -1


@pytest.mark.parametrize("name", ["softmax", "radial"])
def test_a_calibrated_threshold_accepts_nearly_all_known_inputs(name):
    seen, held = known(90), known(60)
    found = decided(name, nn.Identity(), seen, held, held.inputs)[f"{name}, calibrated"]
    assert (found == -1).float().mean() <= 0.05
    far = torch.full((1, 3), -50.0)
    if name == "radial":
        assert decided(name, nn.Identity(), seen, held, far)["radial, calibrated"].tolist() == [-1]


def test_every_method_has_a_number_for_every_share_and_seed(tiny_record):
    found = tiny_record("rnn")["numbers"]
    assert [each["architecture"] for each in found["architectures"]] == [
        "fully connected",
        "convolutional",
        "recurrent",
    ]
    for each in found["open_world"]:
        assert tuple(each["f1"]) == METHODS
        assert all(len(values) == 2 and all(0 <= value <= 1 for value in values) for values in each["f1"].values())


def test_the_open_world_is_drawn_as_bars_of_means(tiny_figure):
    found, figure = tiny_figure("rnn")
    closed, *opened = figure.axes
    assert len(opened) == 2
    for ax, each in zip(opened, found["open_world"], strict=True):
        bars = [group for group in ax.containers if hasattr(group, "patches")]
        heights = [group.patches[0].get_height() for group in bars]
        assert heights == pytest.approx([100 * np.mean(each["f1"][method]) for method in METHODS])
        assert each["title"] in ax.get_title()
    assert "accuracy" in closed.get_ylabel()
