"""Claim 9: the radial layer works with any architecture."""

from collections.abc import Mapping, Sequence

from paper.claims.alike import as_good
from paper.claims.claim import Claim, Measures, Verdict
from paper.plan import Results


def measure(results: Mapping[str, Results]) -> Measures:
    """Return test accuracies with all classes known, by architecture and head; then other losses on the texts."""
    measures: Measures = {
        f"{head}, {each['architecture']}": each["accuracy"][head]
        for each in results["rnn"]["architectures"]
        for head in ("softmax", "radial")
    }
    return measures | (losses(results["imbalance"]) if "imbalance" in results else {})


def losses(results: Results) -> Measures:
    """Return macro-F1 and accuracy on the texts: of each loss alone, and with the class weights chosen for it."""
    rows = [(f"{row['loss']}, 80 % of them", row) for row in results["compared"] if row["weights"] == "none"]
    rows += [(f"{row['loss']}, all, class weights {row['weights']}", row) for row in results["final"]]
    return {
        f"texts, {name}, {label}": row[score]
        for name, row in rows
        for score, label in (("macro_f1", "macro-F1"), ("accuracy", "accuracy"))
    }


def verdict(measures: Mapping[str, Sequence[float]]) -> Verdict:
    """Apply the rule."""
    kinds = [name.removeprefix("radial, ") for name in measures if name.startswith("radial, ")]
    holds = [as_good(measures[f"radial, {kind}"], measures[f"softmax, {kind}"]) for kind in kinds]
    return "reproduced" if all(holds) else "partly" if any(holds) else "not reproduced"


CLAIM = Claim(
    number=9,
    text="The radial layer works with any architecture: fully connected, convolutional, recurrent.",
    paper="no number",
    rule=(
        "Test accuracy with all classes known, over seeds, of one network of each kind: fully connected on scanned "
        "digits, convolutional on Reuters' topics, recurrent on JapaneseVowels. Radial works if its mean is not below "
        "that of softmax by more than the error over seeds, the larger of both. Reproduced: with all three. Partly: "
        "with one or two. Not reproduced: with none. Rows that begin with texts were added later and do not count: the "
        "convolutional network with other losses on 80 % of the training documents, and on all of them with the class "
        "weights that were best on the other 20 %."
    ),
    experiments=("rnn",),
    measure=measure,
    verdict=verdict,
    first=20,
)
