import math
import re

import numpy as np
import pytest
import torch
from matplotlib.container import ErrorbarContainer

from openradial.data import load
from paper import attack, err, fig8
from paper.mnist_nets import RECIPES, TRAINING, VARIANTS, MnistRun, other_images, some_images
from paper.winning import histogram, median, share_above, summed

TINY = TRAINING["tiny"]


@pytest.fixture(autouse=True, scope="module")
def images_of_mnist(fetched):
    fetched(load, "mnist", "test")


def test_the_paper_s_settings_are_the_full_size():
    full = TRAINING["full"]
    assert (full.epochs, full.batch_size, full.examples, full.tests) == (10, 1024, 60_000, 10_000)
    assert full.seeds >= 5
    assert RECIPES["stated"].learning_rate == 1e-4
    assert (RECIPES["stated"].mean, RECIPES["stated"].std) == (0.0, 1.0)
    assert (fig8.SETTINGS["full"].images, attack.SETTINGS["full"].images) == (10_000, 2_000)


def test_attacked_images_and_those_the_rejector_learns_from_are_all_different():
    attacked, others = some_images(2_000), other_images(2_000)
    assert len(attacked) + len(others) == 10_000
    both = torch.cat([attacked.inputs, others.inputs]).flatten(1)
    expected = load("mnist", "test").inputs.flatten(1).float() / 255
    assert sorted(both.double().sum(1).tolist()) == pytest.approx(sorted(expected.double().sum(1).tolist()))


def test_images_lie_between_0_and_1():
    images = some_images(50).inputs
    assert 0 <= images.min() < images.max() <= 1


def test_a_network_takes_images_as_they_are_and_gives_what_it_was_trained_on(tiny_plan):
    net, x, recipe = MnistRun(tiny_plan, TINY, "radial", 0).net(), some_images(20).inputs, RECIPES["reaching"]
    torch.testing.assert_close(net(x), net[1]((x - recipe.mean) / recipe.std))


def test_table_1_has_both_settings_and_three_variants(tiny_record):
    found = tiny_record("tab1")["numbers"]
    assert list(found["mnist"]) == ["stated", "reaching"]
    assert all(list(variants) == list(VARIANTS) for variants in found["mnist"].values())
    values = [value for variants in found["mnist"].values() for runs in variants.values() for value in runs]
    assert len(values) == 2 * 3 * TINY.seeds
    assert all(0 <= value <= 1 for value in values)


def test_table_1_draws_means_and_says_whose_numbers_are_whose(tiny_figure):
    numbers, figure = tiny_figure("tab1")
    panels = [ax for subfigure in figure.subfigs for ax in subfigure.axes]
    for ax, variants in zip(panels, numbers["mnist"].values(), strict=False):
        bars = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
        drawn = [float(each.lines[0].get_ydata()[0]) for each in bars]
        assert drawn == pytest.approx([100 * np.mean(runs) for runs in variants.values()])
    cells = {place: cell.get_text().get_text() for place, cell in panels[-1].tables[0].get_celld().items()}
    rows = [[cells[row, column] for column in range(5)] for row in range(1, 6)]
    assert [row[0] for row in rows] == ["the paper"] * 3 + ["ours"] * 2
    assert all("ImageNet" in row[1] for row in rows[:3])
    assert all(row[1] == numbers["images"]["title"] and "VGG" not in row[2] for row in rows[3:])
    assert rows[3][3] == f"{100 * numbers['images']['radial']['top_1']:.1f}"


def test_the_error_is_twice_the_corrected_deviation_of_the_same_runs(tiny_record):
    rows = tiny_record("err")["numbers"]["rows"]
    first = tiny_record("tab1")["numbers"]["mnist"]["stated"]["softmax"]
    assert rows[0]["runs"] == first
    for row in rows:
        mean = sum(row["runs"]) / len(row["runs"])
        squares = sum((value - mean) ** 2 for value in row["runs"])
        assert row["error"] == pytest.approx(2 * math.sqrt(squares / (len(row["runs"]) - 1)))


def test_the_paper_s_own_runs_have_an_error_of_3_6_points():
    assert 100 * err._spread(err.PAPER)["error"] == pytest.approx(3.6, abs=0.05)


def test_a_single_run_has_no_error():
    assert err._spread([0.5]) == {"mean": 0.5, "error": None}


def test_the_errors_are_drawn_around_zero(tiny_figure):
    numbers, figure = tiny_figure("err")
    (ax,) = figure.axes
    away = [float(x) for scatter in ax.collections[:1] for x in scatter.get_offsets()[:, 0]]
    row = numbers["rows"][0]
    assert away == pytest.approx([100 * (value - row["mean"]) for value in row["runs"]])
    assert [label.get_text() for label in ax.get_yticklabels()][-1].startswith("the paper")


def test_winning_probabilities_are_those_of_a_plain_loop(tiny_plan, tiny_record):
    found = tiny_record("fig6")["numbers"]["radial"][0]
    run = MnistRun(tiny_plan, TINY, "radial", 0)
    right, wrong = [], []
    for o, y in zip(run.outputs().double().tolist(), some_images(TINY.tests).labels.tolist(), strict=True):
        d = [math.sqrt(sum((o[j] - (j == k)) ** 2 for j in range(10))) for k in range(10)]
        (right if d.index(min(d)) == y else wrong).append(math.exp(-min(d)))
    assert found["median_wrong"] == pytest.approx(sorted(wrong)[(len(wrong) - 1) // 2], abs=1e-4)
    one = 1 / len(wrong)  # a probability on an edge may fall to either side
    assert found["wrong_above"] == pytest.approx(sum(p > 0.9 for p in wrong) / len(wrong), abs=one)
    counts = np.histogram(right, bins=40, range=(0, 1))[0]
    assert abs(np.cumsum(found["histograms"]["right"]) - counts.cumsum()).max() <= 1
    assert counts.sum() + sum(found["histograms"]["wrong"]) == TINY.tests


def drawn_shares(ax):
    return [patch.get_data().values.tolist() for patch in ax.patches]


def test_figure_6_draws_shares_of_right_and_wrong_on_a_log_scale(tiny_figure):
    numbers, figure = tiny_figure("fig6")
    assert [ax.get_yscale() for ax in figure.axes] == ["log"] * 3
    for ax, variant in zip(figure.axes, VARIANTS, strict=True):
        wrong = summed([seed["histograms"]["wrong"] for seed in numbers[variant]])
        assert drawn_shares(ax)[1] == pytest.approx([100 * count / sum(wrong) for count in wrong])
        assert variant in ax.get_title()


def test_larger_beta_moves_the_mass_to_the_left(tiny_figure):
    numbers, figure = tiny_figure("sup3")
    for seed in numbers["seeds"]:
        assert seed["medians"] == sorted(seed["medians"], reverse=True)
    assert len(figure.axes) == len(numbers["betas"])
    right = summed([seed["right"][0] for seed in numbers["seeds"]])
    assert drawn_shares(figure.axes[0])[0] == pytest.approx([100 * count / sum(right) for count in right])


def test_beta_1_is_that_of_figure_6(tiny_record):
    beside = tiny_record("fig6")["numbers"]["radial"]
    for seed, same in zip(tiny_record("sup3")["numbers"]["seeds"], beside, strict=True):
        assert seed["right"][0] == same["histograms"]["right"]


def test_figure_8_starts_at_the_accuracy_without_an_attack(tiny_plan, tiny_record):
    numbers = tiny_record("fig8")["numbers"]
    images = some_images(fig8.SETTINGS["tiny"].images)
    for variant, curves in numbers["accuracy"].items():
        run = MnistRun(tiny_plan, TINY, variant, 0)
        plain = (run.head.predict(run.net()(images.inputs)) == images.labels).double().mean()
        assert curves[0][0] == pytest.approx(float(plain))
        assert all(len(curve) == len(numbers["epsilons"]) for curve in curves)


def test_figure_8_draws_the_mean_over_seeds_and_a_band(tiny_figure):
    numbers, figure = tiny_figure("fig8")
    (ax,) = figure.axes
    assert [line.get_label() for line in ax.lines] == list(VARIANTS)
    for line, curves in zip(ax.lines, numbers["accuracy"].values(), strict=True):
        assert line.get_ydata() == pytest.approx(100 * np.mean(curves, 0))
    assert len(ax.collections) == len(VARIANTS)
    assert re.search("0 to 1", ax.get_xlabel())


def test_the_worst_attack_is_as_strong_as_each(tiny_record):
    numbers = tiny_record("attack")["numbers"]
    for head, seeds in numbers["heads"].items():
        for seed in seeds:
            losses = {name: values for name, values in seed["pgd"].items() if name != "worst"}
            assert ("target" in losses) == (head == "radial")
            for place, value in enumerate(seed["pgd"]["worst"]):
                assert value <= min(values[place] for values in losses.values())


def test_what_becomes_of_attacked_images_adds_up(tiny_record):
    for seeds in tiny_record("attack")["numbers"]["heads"].values():
        for seed in seeds:
            for way in ("fgsm", "aware"):
                assert [sum(found.values()) for found in seed["outcomes"][way]] == pytest.approx([1.0] * 4)


def test_an_attacker_who_knows_the_rejector_gets_at_least_as_much_past_it(tiny_record):
    for seeds in tiny_record("attack")["numbers"]["heads"].values():
        for seed in seeds:
            pairs = zip(seed["outcomes"]["fgsm"], seed["outcomes"]["aware"], strict=True)
            assert all(aware["accepted_wrong"] >= fgsm["accepted_wrong"] for fgsm, aware in pairs)


def test_attacks_are_drawn_as_curves_and_stacked_outcomes(tiny_figure):
    numbers, figure = tiny_figure("attack")
    curves, *bars = [ax for subfigure in figure.subfigs for ax in subfigure.axes]
    solid = next(line for line in curves.lines if line.get_label() == "radial: PGD, worst of all losses")
    expected = 100 * np.mean([seed["pgd"]["worst"] for seed in numbers["heads"]["radial"]], 0)
    assert solid.get_ydata() == pytest.approx(expected)
    for ax in bars:
        heights = np.sum([[bar.get_height() for bar in group] for group in ax.containers], 0)
        assert heights == pytest.approx([100.0] * 4)


def test_probabilities_at_both_ends_are_counted():
    counts = histogram(torch.tensor([0.0, 1.0, 1.0]))
    assert (counts[0], counts[-1], sum(counts)) == (1, 2, 3)


def test_no_probability_is_above_a_limit_where_there_is_none():
    assert share_above(torch.tensor([]), 0.9) == 0.0
    assert share_above(torch.tensor([0.9, 0.91]), 0.9) == 0.5
    assert median(torch.tensor([0.1, 0.2, 0.9])) == 0.2
