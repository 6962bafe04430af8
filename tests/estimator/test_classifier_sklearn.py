"""scikit-learn's own tests of an estimator, with rejection off."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from openradial.estimator import RadialClassifier


@parametrize_with_checks([RadialClassifier(), RadialClassifier(method="closed-form")])
def test_the_classifier_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)
