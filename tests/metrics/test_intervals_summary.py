import numpy as np
import pytest

from openradial.metrics import aupr, aurc, auroc, fpr_at_tpr, misclassification_auroc, oscr, summary

RANDOM = np.random.default_rng(0)
KNOWN, NOVEL = RANDOM.normal(size=60).round(1), RANDOM.normal(1, size=40).round(1)
CORRECT = RANDOM.random(60) < 0.8


def test_the_summary_holds_what_each_metric_gives():
    assert summary(KNOWN, NOVEL, CORRECT) == {
        "auroc": auroc(KNOWN, NOVEL),
        "aupr_known": aupr(KNOWN, NOVEL, "known"),
        "aupr_novel": aupr(KNOWN, NOVEL, "novel"),
        "fpr_at_tpr": fpr_at_tpr(KNOWN, NOVEL),
        "accuracy": np.mean(CORRECT),
        "oscr": oscr(KNOWN, NOVEL, CORRECT),
        "aurc": aurc(KNOWN, CORRECT),
        "misclassification_auroc": misclassification_auroc(KNOWN, CORRECT),
    }


def test_without_correctness_the_summary_is_about_scores_alone():
    assert list(summary(KNOWN, NOVEL)) == ["auroc", "aupr_known", "aupr_novel", "fpr_at_tpr"]


def test_the_tpr_of_the_summary_can_be_chosen():
    assert summary(KNOWN, NOVEL, tpr=0.5)["fpr_at_tpr"] == fpr_at_tpr(KNOWN, NOVEL, 0.5)


@pytest.mark.parametrize("correct", [True, False])
def test_where_all_are_right_or_all_wrong_there_is_no_misclassification_auroc(correct):
    found = summary(KNOWN, NOVEL, [correct] * len(KNOWN))
    assert "misclassification_auroc" not in found
    assert found["aurc"] == 1 - correct
