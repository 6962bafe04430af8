"""The report as one HTML file that needs no other: the pictures are inside."""

import base64
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.report import Row, Section

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #ccc; --soft: #666;
  --good: #006a4d; --half: #8a5a00; --bad: #a83c00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181b; --line: #444; --soft: #a0a0a0;
  --good: #4fd1a5; --half: #f0b94a; --bad: #ff8a57; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 0 auto; padding: 1.5rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { padding: 0.6rem 0.8rem 0.3rem 0; text-align: left; vertical-align: top; }
th:nth-child(2) { width: 36%; } th:nth-child(3) { width: 20%; } th:nth-child(4) { width: 14%; }
tbody { border-top: 1px solid var(--line); }
td ul { margin: 0; padding: 0; list-style: none; font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; }
.reproduced { color: var(--good); } .partly { color: var(--half); } .not { color: var(--bad); }
.facts, .rule { color: var(--soft); font-size: 0.85rem; }
.rule td { padding-bottom: 0.8rem; } .rule ul { columns: 20rem; margin-top: 0.5rem; }
figure { margin: 1rem 0; } img { width: 100%; background: #fff; border-radius: 6px; }
@media print { :root { --ink: #000; --paper: #fff; --line: #bbb; --soft: #444; --good: #006a4d; --half: #8a5a00;
  --bad: #a83c00; } body { max-width: none; padding: 0; font-size: 11pt; }
  figure, tbody, .rule li { break-inside: avoid; } h2 { break-after: avoid; } }
"""


def page(summary: str, rows: Sequence["Row"], sections: Sequence["Section"]) -> str:
    """The whole page."""
    body = [
        "<h1>The paper, reproduced</h1>",
        f"<p>{escape(summary)}</p>",
        "<table><thead><tr><th>claim</th><th>ours</th><th>the paper's</th><th>verdict</th></tr></thead>",
        *map(_row, rows),
        "</table>",
        *map(_section, sections),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The paper, reproduced</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _row(row: "Row") -> str:
    claim, kind = row.claim, (row.verdict or "").partition(" ")[0]
    return (
        f"<tbody><tr><td>{claim.number}. {escape(claim.text)}</td><td>{_list(row.ours)}</td>"
        f'<td>{escape(claim.paper)}</td><td class="verdict {kind}">{escape(row.said)}</td></tr>'
        f'<tr class="rule"><td colspan="4">{escape(claim.rule)}{_list(row.others)}</td></tr></tbody>'
    )


def _list(lines: Sequence[str]) -> str:
    items = [f"<li>{escape(line).replace(' ± ', '&nbsp;±&nbsp;')}</li>" for line in lines]
    return f"<ul>{''.join(items)}</ul>" if lines else ""


def _section(section: "Section") -> str:
    experiment = section.experiment
    picture = base64.b64encode(section.picture.read_bytes()).decode()
    return (
        f'<h2 id="{experiment.id}">{experiment.id}: {escape(experiment.title)}</h2>\n'
        f'<figure><img alt="{escape(experiment.title)}" src="data:image/svg+xml;base64,{picture}">'
        f'<figcaption>{escape(experiment.caption)}<p class="facts">{escape(section.facts)}</p></figcaption></figure>'
    )
