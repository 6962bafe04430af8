"""``openradial play``: open the playground."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from openradial.cli.modules import Modules, Port, open_model
from openradial.server.settings import LogFormat, LogLevel


def play_command(
    model: Annotated[Path | None, typer.Argument(help="The folder of your model, written by openradial fit.")] = None,
    port: Port = 8080,
    data: Annotated[
        str | None, typer.Option(help="Training data of a model of texts, to show the sentences nearest to yours.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of these data with the classes.")] = None,
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
    from openradial.server.playground.sentences import Sentences

    bundle = digit_model("radial") if model is None else open_model(model, module)
    title, sentences = None if model is None else model.resolve().name, Sentences(bundle, data, label)
    monitoring.configure_logging(log_level, LogFormat.PLAIN)
    service = Service(bundle, Limits())
    with http_server.listen("127.0.0.1", port) as listening:
        url = http_server.url_of(listening)
        app = create_playground(service, title=title, sentences=sentences, stopped=lambda: service.is_stopping)
        typer.echo(f"the playground is at {url}")
        if browser:
            webbrowser.open(url)
        http_server.serve(app, listening, limits=service.limits, grace=3)  # seconds to finish accepted requests
