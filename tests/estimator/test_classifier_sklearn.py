"""scikit-learn's own tests of an estimator, with rejection off."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from openradial.estimator import RadialClassifier

ORDER = "the result depends on the order of the rows, as it does without weights: these checks shuffle them"
EXPECTED = {f"check_sample_weight_equivalence_on_{kind}_data": ORDER for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [RadialClassifier(), RadialClassifier(method="closed-form")], expected_failed_checks=lambda estimator: EXPECTED
)
def test_the_classifier_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)
