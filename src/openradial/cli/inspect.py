"""``openradial inspect``: what a bundle holds."""

import json
from pathlib import Path
from typing import Annotated

import typer

from openradial.bundle import describe
from openradial.bundle.card import lines, sections

Model = Annotated[Path, typer.Argument(help="The folder of a bundle, as openradial fit writes it.")]


def inspect_command(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="All of bundle.json, for a script.")] = False,
) -> None:
    """Show what a trained model is: classes, network, inputs, decision, facts and checksums, which are compared."""
    record = describe(model)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
        return
    for title, facts in sections(record).items():
        typer.echo(title)
        for depth, name, text in lines(facts):
            typer.echo(f"{'  ' * (depth + 1)}{name}: {text}".rstrip())
    typer.echo(f"checksums are right; card in {model / 'card.md'}")
