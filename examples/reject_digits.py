"""Digits 0 to 7 are known, 8 and 9 are novel: how many of each does a classifier reject?

A third of the known digits is held out for testing. The rate is guaranteed for known digits, on average over samples;
there is no guarantee for the share of novel digits that is rejected.
"""

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import openradial
from openradial.metrics import auroc

KNOWN = 8
RATES = (0.02, 0.05, 0.1)


def main() -> dict[float, tuple[float, float]]:
    """Return the share of known and of novel digits that is rejected, by rate."""
    X, y = load_digits(return_X_y=True)
    known = y < KNOWN
    train_X, test_X, train_y, test_y = train_test_split(
        X[known], y[known], test_size=1 / 3, stratify=y[known], random_state=0
    )
    classifier = openradial.RadialClassifier(random_state=0).fit(train_X, train_y)

    rejected = {}
    for rate in RATES:
        predicted = (classifier.predict(rows, false_reject_rate=rate) for rows in (test_X, X[~known]))
        of_known, of_novel = (float((labels == -1).mean()) for labels in predicted)
        print(f"rate {rate:4.0%}: {of_known:5.1%} of known digits rejected, {of_novel:5.1%} of novel ones")
        rejected[rate] = (of_known, of_novel)
    scores = classifier.unknown_score(test_X), classifier.unknown_score(X[~known])
    print(f"AUROC, known versus novel: {auroc(*scores):.3f}")

    closed = openradial.RadialClassifier(beta="fit", false_reject_rate=None, random_state=0).fit(train_X, train_y)
    print(f"without rejection: accuracy {closed.score(test_X, test_y):.3f}", end=", ")
    print(f"log loss {log_loss(test_y, closed.predict_proba(test_X)):.3f} with beta = {closed.beta_:.2f}")
    return rejected


if __name__ == "__main__":
    main()
