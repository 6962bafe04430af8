"""Render the report as one self-contained HTML file with the figures inside."""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jinja2

if TYPE_CHECKING:
    from paper.report import Row, Section


def page(summary: str, rows: Sequence["Row"], sections: Sequence["Section"]) -> str:
    """Return the report as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paper"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    pictures = [base64.b64encode(section.picture.read_bytes()).decode() for section in sections]
    figures = list(zip(sections, pictures, strict=True))
    return environment.get_template("report.html.j2").render(summary=summary, rows=rows, figures=figures)
