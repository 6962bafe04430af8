"""``openradial play``: open the playground."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from openradial.cli.modules import Modules, Port, open_model
from openradial.server.settings import LogFormat, LogLevel

GRACE = 3  # seconds to finish accepted requests at shutdown


def play_command(
    model: Annotated[Path | None, typer.Argument(help="The folder of your model, written by openradial fit.")] = None,
    port: Port = 8080,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    module: Modules = None,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level to log.")] = LogLevel.WARNING,
) -> None:
    """Serve the playground on this computer until Ctrl+C: train on the spiral, draw digits, and try your model.

    The page loads nothing from the web, and other computers cannot reach it.
    """
    from openradial.server import Limits, Service, http_server, monitoring
    from openradial.server.playground import create_playground
    from openradial.server.playground.digits import digit_model

    bundle = digit_model("radial") if model is None else open_model(model, module)
    title = None if model is None else model.resolve().name
    monitoring.configure_logging(log_level, LogFormat.PLAIN)
    limits = Limits()
    with http_server.listen("127.0.0.1", port) as listening:
        url = http_server.url_of(listening)
        app = create_playground(Service(bundle, limits), title=title, stopped=lambda: listening.fileno() < 0)
        typer.echo(f"the playground is at {url}")
        if browser:
            webbrowser.open(url)
        http_server.serve(app, listening, limits=limits, grace=GRACE)
