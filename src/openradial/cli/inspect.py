"""``openradial inspect``: show the contents of a model."""

import typer

from openradial.cli.modules import Json, Model


def inspect_command(model: Model, as_json: Json = False) -> None:
    """Show classes, network, inputs, decision, metadata and checksums of a model, and verify the checksums."""
    from openradial.bundle import describe
    from openradial.bundle.card import lines, sections

    record = describe(model)
    if as_json:
        typer.echo(record.to_json(), nl=False)
        return
    for title, values in sections(record).items():
        typer.echo(title)
        for depth, name, text in lines(values):
            typer.echo(f"{'  ' * (depth + 1)}{name}: {text}".rstrip())
    typer.echo(f"checksums match; card in {model / 'card.md'}")
