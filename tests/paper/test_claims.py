import re

import pytest

from paper import CLAIMS, IDS, find
from paper.claims import (
    alike,
    architectures,
    attacked,
    bayesian,
    clearly_above,
    error_of,
    far_away,
    label_noise,
    novel_classes,
    prototype_length,
    shown,
    wrong_predictions,
)


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


GOOD, SAME, BAD = [0.98, 0.99], [0.97, 0.99], [0.90, 0.91]  # errors 0.014, 0.028, 0.014


@pytest.mark.parametrize(
    ("stated", "reaching", "verdict"),
    [
        (SAME, SAME, "reproduced"),
        (GOOD, GOOD, "reproduced"),
        (SAME, BAD, "partly"),
        (BAD, SAME, "partly"),
        (BAD, BAD, "not reproduced"),
        ([0.99], [0.99], "not reproduced"),  # a single run has no error
    ],
)
def test_accuracies_within_the_error_decide_claim_1(stated, reaching, verdict):
    radial = {"stated": {"softmax": GOOD, "radial": stated}, "reaching": {"softmax": GOOD, "radial": reaching}}
    assert alike.verdict(alike.measure({"tab1": {"mnist": radial}})) == verdict


def test_claim_1_goes_by_the_larger_of_both_errors():
    wide, above = [0.90, 0.98], [0.98, 0.981]  # error 0.113 around 0.94
    assert alike.as_good(wide, above)
    assert not alike.as_good([0.939, 0.941], above)


def wrong(softmax=(0.4, 0.5), radial=(0.0, 0.05), right=(0.9, 0.9)):
    def seeds(shares, medians):
        return [
            {"wrong_above": s, "median_wrong": 0.4, "median_right": m} for s, m in zip(shares, medians, strict=True)
        ]

    return wrong_predictions.measure({"fig6": {"softmax": seeds(softmax, right), "radial": seeds(radial, right)}})


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"radial": (0.09, 0.11)}, "reproduced"),
        ({"radial": (0.10, 0.12)}, "partly"),
        ({"right": (0.79, 0.79)}, "partly"),
        ({"radial": (0.38, 0.45)}, "not reproduced"),
        ({"softmax": (0.0, 0.01)}, "not reproduced"),
    ],
)
def test_shares_of_sure_mistakes_decide_claim_5(changes, verdict):
    assert wrong_predictions.verdict(wrong(**changes)) == verdict


@pytest.mark.parametrize(
    ("known", "novel", "auroc", "verdict"),
    [
        (0.9, 0.45, 0.8, "reproduced"),
        (0.9, 0.46, 0.8, "partly"),
        (0.9, 0.45, 0.79, "partly"),
        (0.9, 0.89, 0.65, "partly"),
        (0.9, 0.91, 0.65, "not reproduced"),
        (0.9, 0.3, 0.64, "not reproduced"),
    ],
)
def test_medians_and_auroc_decide_claim_6(known, novel, auroc, verdict):
    run = {"median_known": known, "median_novel": novel, "auroc": auroc}
    softmax = {"median_known": 0.5, "median_novel": 0.5, "auroc": 0.5}  # does not count
    heads = {"softmax": [softmax], "radial": [run]}
    assert novel_classes.verdict(novel_classes.measure({"fig7": {"heads": heads}})) == verdict


def under_attack(fgsm=((0.5, 0.52), (0.7, 0.72)), worst=((0.1, 0.1), (0.2, 0.2))):
    """Accuracies of softmax and radial, the same for all epsilons but 0."""
    curves = {
        head: [[0.99, value, value, value] for value in values]
        for head, values in zip(("softmax", "radial"), fgsm, strict=True)
    }
    seeds = {
        head: [{"pgd": {"worst": [0.99, value, value, value]}} for value in values]
        for head, values in zip(("softmax", "radial"), worst, strict=True)
    }
    epsilons = [0.0, 0.1, 0.2, 0.3]
    return attacked.measure(
        {"fig8": {"epsilons": epsilons, "accuracy": curves}, "attack": {"epsilons": epsilons, "heads": seeds}}
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),  # a lead of 0.2 under FGSM, of 0.1 under the worst attack
        ({"worst": ((0.1, 0.1), (0.19, 0.19))}, "partly"),
        ({"worst": ((0.2, 0.2), (0.1, 0.1))}, "partly"),
        ({"fgsm": ((0.6, 0.7), (0.7, 0.71))}, "not reproduced"),
        ({"fgsm": ((0.7, 0.7), (0.5, 0.5))}, "not reproduced"),
        ({"fgsm": ((0.5,), (0.7,))}, "not reproduced"),
    ],
)
def test_the_lead_under_fgsm_and_what_survives_decide_claim_7(changes, verdict):
    assert attacked.verdict(under_attack(**changes)) == verdict


def test_a_lead_that_fails_at_one_epsilon_is_none():
    measures = under_attack()
    measures["radial, FGSM 0.2"] = [0.5, 0.52]
    assert attacked.verdict(measures) == "not reproduced"


def test_the_share_of_the_advantage_that_survives_is_told():
    assert under_attack()["share of the advantage that survives"] == [pytest.approx(0.5)]
    assert under_attack(fgsm=((0.7, 0.7), (0.5, 0.5)))["share of the advantage that survives"] == [0.0]


def lengths(accuracies, noises):
    found = {
        a: {"accuracy": accuracy, "noise": noise}
        for a, accuracy, noise in zip(("1", "5", "100"), accuracies, noises, strict=True)
    }
    return prototype_length.measure({"sup4": {"mnist": found}})


RISING, FALLING = ([0.1], [0.5], [9.0]), ([0.1], [0.5], [0.4])


@pytest.mark.parametrize(
    ("accuracies", "noises", "verdict"),
    [
        ((GOOD, SAME, GOOD), RISING, "reproduced"),
        ((GOOD, SAME, BAD), RISING, "partly"),
        ((GOOD, SAME, GOOD), FALLING, "partly"),
        ((BAD, BAD, GOOD), RISING, "partly"),  # better is not alike either
        ((GOOD, SAME, BAD), FALLING, "not reproduced"),
        (([0.9], [0.9], [0.9]), FALLING, "not reproduced"),
    ],
)
def test_accuracy_and_noise_for_each_length_decide_claim_8(accuracies, noises, verdict):
    assert prototype_length.verdict(lengths(accuracies, noises)) == verdict


@pytest.mark.parametrize(
    ("radial", "verdict"),
    [
        ((GOOD, SAME, GOOD), "reproduced"),
        ((GOOD, SAME, BAD), "partly"),
        ((BAD, BAD, GOOD), "partly"),
        ((BAD, BAD, BAD), "not reproduced"),
    ],
)
def test_every_architecture_counts_for_claim_9(radial, verdict):
    kinds = ("fully connected", "convolutional", "recurrent")
    found = [
        {"architecture": kind, "accuracy": {"softmax": GOOD, "radial": values}}
        for kind, values in zip(kinds, radial, strict=True)
    ]
    results = {"rnn": {"architectures": found}}
    assert architectures.verdict(architectures.measure(results)) == verdict
    rows = [{"loss": "squared", "weights": weights, "accuracy": BAD, "macro_f1": BAD} for weights in ("none", "sqrt")]
    measures = architectures.measure(results | {"imbalance": {"compared": rows, "final": rows[1:]}})
    names = ("squared, 80 % of them", "squared, all, class weights sqrt")
    assert list(measures)[6:] == [f"texts, {name}, {score}" for name in names for score in ("macro-F1", "accuracy")]
    assert architectures.verdict(measures) == verdict  # later rows do not count


@pytest.mark.parametrize(
    ("claim", "id"), [(alike, "tab1"), (wrong_predictions, "fig6"), (novel_classes, "fig7"), (prototype_length, "sup4")]
)
def test_results_of_experiments_are_understood_by_their_claims(claim, id, tiny_record):
    measures = claim.measure({id: tiny_record(id)["numbers"]})
    assert claim.verdict(measures) in ("reproduced", "partly", "not reproduced")
    assert all(isinstance(value, float) for values in measures.values() for value in values)


def test_results_of_attacks_and_sequences_are_understood_by_their_claims(tiny_record):
    results = {id: tiny_record(id)["numbers"] for id in ("fig8", "attack", "rnn")}
    for claim in (attacked, architectures):
        assert claim.verdict(claim.measure(results)) in ("reproduced", "partly", "not reproduced")
