import re

import pytest

from paper import CLAIMS, IDS, find
from paper.claims import bayesian, clearly_above, error_of, far_away, label_noise, shown


def test_claims_are_numbered_in_order_and_each_once():
    numbers = [claim.number for claim in CLAIMS]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(range(1, 10))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"claim {claim.number}")
def test_a_claim_says_what_it_needs_and_how_it_is_judged(claim):
    assert set(claim.experiments) <= set(IDS)
    assert all(claim.number in find(id).claims for id in claim.experiments)
    assert all(word in claim.rule for word in ("Reproduced:", "Partly:", "Not reproduced:"))
    assert claim.text.endswith(".")


def test_the_error_is_twice_the_corrected_deviation():
    assert error_of([1.0, 2.0, 3.0, 4.0]) == pytest.approx(2 * (5 / 3) ** 0.5)
    assert error_of([1.0]) is None


def test_means_within_the_larger_error_are_not_clearly_apart():
    assert clearly_above([0.90, 0.92], [0.80, 0.82])
    assert not clearly_above([0.90, 0.92], [0.80, 1.00])
    assert not clearly_above([0.80, 0.82], [0.90, 0.92])


def test_a_single_run_is_never_clearly_above():
    assert not clearly_above([1.0], [0.0])
    assert not clearly_above([1.0, 1.0], [0.0])


def test_numbers_are_shown_with_their_error():
    assert shown([0.1, 0.3]) == "0.200 ± 0.283"
    assert shown([0.25]) == "0.250"


def far(**changes):
    """Measures of claim 2 that reproduce it, with changes."""
    measures = {
        "softmax, far points with p > 0.9, radius 2": [0.9, 1.0],
        "radial, far points with p > 0.9, radius 2": [0.0, 0.01],
        "softmax, far points with p > 0.9, noise 0": [0.8, 0.9],
        "radial, far points with p > 0.9, noise 0": [0.0, 0.0],
        "softmax, test accuracy": [0.99, 1.0],
        "radial, test accuracy": [0.99, 1.0],
        "radial, noise 0, test accuracy": [0.99, 1.0],
        "radial, area with p > 0.5, beta 1": [0.7, 0.6],
        "radial, area with p > 0.5, beta 5": [0.2, 0.1],
        "the paper's softmax network, 1 seeds that learned": [0.0],
    }
    assert set(changes) <= set(measures)
    return measures | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"softmax, far points with p > 0.9, noise 0": [0.4, 0.41]}, "partly"),
        ({"radial, far points with p > 0.9, radius 2": [0.1, 0.11]}, "partly"),
        ({"softmax, far points with p > 0.9, noise 0": [0.0, 0.6]}, "not reproduced"),
        ({"radial, far points with p > 0.9, radius 2": [0.95, 0.95]}, "not reproduced"),
        ({"softmax, test accuracy": [0.94, 0.95]}, "not reproduced"),
        ({"radial, noise 0, test accuracy": [0.6, 0.7]}, "not reproduced"),
        ({"radial, area with p > 0.5, beta 5": [0.2, 0.6]}, "not reproduced"),
    ],
)
def test_far_away_points_decide_claim_2(changes, verdict):
    assert far_away.verdict(far(**changes)) == verdict


def noise(**changes):
    """Measures of claim 3 that reproduce it, with changes; the second case does not count."""
    measures = {
        "softmax, by heart, 300 points": [0.5, 0.6],
        "radial, by heart, 300 points": [0.0, 0.05],
        "softmax, by heart, 2,000 points": [0.0, 0.0],
        "radial, by heart, 2,000 points": [0.0, 0.0],
        "softmax, test accuracy": [0.95, 0.96],
        "softmax, test accuracy without noise": [1.0, 1.0],
        "radial, test accuracy": [0.99, 0.99],
        "radial, test accuracy without noise": [1.0, 1.0],
    }
    assert set(changes) <= set(measures)
    return measures | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"softmax, by heart, 300 points": [0.2, 0.22]}, "partly"),
        ({"radial, by heart, 300 points": [0.1, 0.12]}, "partly"),
        ({"radial, test accuracy": [0.97, 0.97], "softmax, test accuracy": [0.9, 0.9]}, "partly"),
        ({"softmax, test accuracy": [0.95, 1.0]}, "partly"),
        ({"radial, by heart, 300 points": [0.5, 0.6]}, "not reproduced"),
        ({"softmax, by heart, 300 points": [0.0, 0.2]}, "not reproduced"),
    ],
)
def test_wrong_labels_learned_by_heart_decide_claim_3(changes, verdict):
    assert label_noise.verdict(noise(**changes)) == verdict


def sure(**changes):
    """Measures of claim 4 that reproduce it, with changes."""
    measures = {
        "radial, beta 5, far points with p > 0.9": [0.0, 0.02],
        "radial, beta 5, deviation over samples": [0.2, 0.22],
        "radial, beta 5, accuracy": [0.99, 0.98],
        "softmax, far points with p > 0.9": [0.9, 0.95],
        "softmax, deviation over samples": [0.02, 0.03],
        "softmax, accuracy": [0.99, 0.98],
    }
    assert set(changes) <= set(measures)
    return measures | changes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"radial, beta 5, deviation over samples": [0.01, 0.02]}, "partly"),
        ({"softmax, far points with p > 0.9": [0.4, 0.41]}, "partly"),
        ({"radial, beta 5, far points with p > 0.9": [0.1, 0.12]}, "partly"),
        ({"softmax, far points with p > 0.9": [0.0, 0.3]}, "not reproduced"),
        ({"softmax, accuracy": [0.5, 0.6]}, "not reproduced"),
        ({"radial, beta 5, accuracy": [0.5, 0.6]}, "not reproduced"),
    ],
)
def test_far_away_samples_decide_claim_4(changes, verdict):
    assert bayesian.verdict(sure(**changes)) == verdict


@pytest.mark.parametrize(
    "claim", [far_away.CLAIM, label_noise.CLAIM, bayesian.CLAIM], ids=lambda c: f"claim {c.number}"
)
def test_real_numbers_of_the_experiments_can_be_judged(claim, tiny_record):
    measures = claim.measure({id: tiny_record(id)["numbers"] for id in claim.experiments})
    assert all(len(values) == 2 for name, values in measures.items() if "seeds that learned" not in name)
    assert claim.verdict(measures) == "not reproduced"  # one epoch teaches nothing


def test_softmax_networks_that_did_not_learn_are_not_counted_as_cautious():
    first = {"called": [0.0, 0.9], "accuracy": [0.4, 0.99]}
    ring = {"name": "radius 2", "softmax": [1.0, 1.0], "radial": [0.0, 0.0]}
    third = {"rings": [ring], "accuracy": {}, "betas": [5.0], "areas": [[0.1, 0.1]]}
    measures = far_away.measure({"fig1": first, "fig3": third})
    assert measures["the paper's softmax network, 1 seeds that learned"] == [0.9]
    first["accuracy"] = [0.4, 0.4]
    assert not any(re.match("the paper's", name) for name in far_away.measure({"fig1": first, "fig3": third}))
