"""Write the table of losses and class weights on texts of unequal classes: python -m benchmarks.imbalance.

The numbers are those of python -m paper run imbalance --out DIR, which python -m benchmarks.reproduction DIR copies to
benchmarks/results/reproduction. Writes benchmarks/results/imbalance.md.
"""

import json
from typing import Any

from benchmarks.run import RESULTS, table
from openradial.files import write_text
from paper.claims import shown

NUMBERS = RESULTS / "reproduction" / "imbalance.json"
HEADINGS = ["loss", "class weights", "validation macro-F1", "test macro-F1", "test accuracy", "test recall, rarest 5"]


def main() -> None:
    record = json.loads(NUMBERS.read_text(encoding="utf-8"))
    write_text(RESULTS / "imbalance.md", markdown(record))
    print((RESULTS / "imbalance.md").read_text(encoding="utf-8"))


def markdown(record: dict[str, Any]) -> str:
    """Return the tables: losses and weights with 80 % of the documents, on a balanced subset, and with all."""
    numbers, versions = record["numbers"], record["versions"]
    sizes = numbers["training_documents"]
    rarest = sorted(range(len(sizes)), key=lambda k: sizes[k])[:5]
    titles = {
        "compared": f"{100 * (1 - numbers['held_out']):g} % of the {sum(sizes):,} training documents",
        "balanced": f"A balanced subset, {min(sizes)} documents of each class",
        "final": "All documents, with the class weights that were best on held-out documents",
    }
    texts = [
        f"Written by `python -m paper run imbalance` and `python -m benchmarks.imbalance`: {numbers['title']}, "
        f"{min(sizes)} to {max(sizes):,} training documents per topic; mean ± 2 standard deviations over seeds; "
        f"finished {record['finished']}, torch {versions['torch']}."
    ]
    for part, title in titles.items():
        rows = numbers[part]
        seeds = len(rows[0]["accuracy"])
        texts += [f"**{title}** ({seeds} seed{'s' if seeds > 1 else ''})"]
        texts += ["\n".join(table(HEADINGS, [row_of(row, rarest) for row in rows]))]
    return "\n\n".join(texts) + "\n"


def row_of(row: dict[str, Any], rarest: list[int]) -> list[str]:
    validation = row.get("validation_macro_f1")
    recall = [sum(each[k] for k in rarest) / len(rarest) for each in row["recall"]]
    return [
        row["loss"],
        row["weights"],
        "" if validation is None else shown(validation),
        *(shown(each) for each in (row["macro_f1"], row["accuracy"], recall)),
    ]


if __name__ == "__main__":
    main()
