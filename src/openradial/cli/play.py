"""``openradial play``: a page on which one sees what a model says."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from openradial.bundle import Bundle
from openradial.cli.modules import Modules, open_model
from openradial.server import Limits, Service, logs, running
from openradial.server.playground import create_playground
from openradial.server.playground.digits import digit_model

GRACE = 3  # seconds for what was taken, when the playground stops


def play_command(
    model: Annotated[
        Path | None, typer.Argument(help="The folder of a model of yours, as openradial fit writes it.")
    ] = None,
    port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = 8080,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    module: Modules = None,
    log_level: Annotated[logs.Level, typer.Option(help="What is written.")] = logs.Level.WARNING,
) -> None:
    """Serve the playground on this computer until Ctrl+C: the spiral live, digits to draw, and a model of yours to try.

    Nothing is fetched from elsewhere, and nobody else can reach it.
    """
    bundle, title = _model(model, module)
    logs.set_up(log_level, logs.Form.PLAIN)
    limits = Limits()
    with running.listen("127.0.0.1", port) as opened:
        url = running.url_of(opened)
        app = create_playground(Service(bundle, limits), title=title, stopped=lambda: opened.fileno() < 0)
        typer.echo(f"the playground is at {url}")
        if browser:
            webbrowser.open(url)
        running.serve(app, opened, limits=limits, grace=GRACE)


def _model(folder: Path | None, modules: list[str] | None) -> tuple[Bundle, str | None]:
    if folder is None:
        return digit_model("radial"), None
    return open_model(folder, modules), folder.resolve().name
