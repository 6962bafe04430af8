"""Render the report as Markdown, with the figures in files beside it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.report import Row, Section


def markdown(summary: str, rows: Sequence["Row"], sections: Sequence["Section"]) -> str:
    """Return the report as Markdown: the table of claims, their rules, then the figures."""
    lines = [
        "# The paper, reproduced",
        "",
        summary,
        "",
        "| claim | ours | the paper's | verdict |",
        "|---|---|---|---|",
    ]
    lines += [_line(row) for row in rows]
    lines += ["", "## Rules", ""]
    for row in rows:
        lines += [f"- **{row.claim.number}.** {row.claim.rule}"]
        lines += [f"  Our other numbers: {'; '.join(row.others)}."] if row.others else []
    for section in sections:
        experiment = section.experiment
        lines += ["", f"## {experiment.id}: {experiment.title}", "", f"![{experiment.title}]({experiment.id}.png)"]
        lines += ["", experiment.caption, "", f"*{section.facts}*"]
    return "\n".join([*lines, ""])


def _line(row: "Row") -> str:
    cells = [f"{row.claim.number}. {row.claim.text}", "<br>".join(row.ours), row.claim.paper, f"**{row.said}**"]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
