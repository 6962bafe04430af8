"""``openradial serve``: serve a model over HTTP."""

import os
from typing import Annotated

import typer

from openradial.cli.modules import Model, Modules, Port, open_model
from openradial.errors import check_count
from openradial.server.settings import Limits, LogFormat, LogLevel

LIMITS, LOG = "Limits", "Log"
DEFAULTS = Limits()


def serve_command(
    model: Model,
    host: Annotated[
        str, typer.Option(help="Address to listen on; an address that other computers can reach needs a token.")
    ] = "127.0.0.1",
    port: Port = 8000,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="Allow access without a token from any address.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the model; by default one less than there are cores.")
    ] = None,
    grace: Annotated[int, typer.Option(help="Seconds to finish accepted requests at shutdown.", min=0)] = 30,
    module: Modules = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", rich_help_panel=LIMITS)] = DEFAULTS.body,
    max_pixels: Annotated[int, typer.Option(help="Pixels of an image.", rich_help_panel=LIMITS)] = DEFAULTS.pixels,
    max_items: Annotated[int, typer.Option(help="Inputs of a request.", rich_help_panel=LIMITS)] = DEFAULTS.items,
    max_steps: Annotated[
        int, typer.Option(help="Steps of a sequence, words of a text.", rich_help_panel=LIMITS)
    ] = DEFAULTS.steps,
    max_queue: Annotated[int, typer.Option(help="Inputs in the queue.", rich_help_panel=LIMITS)] = DEFAULTS.queue,
    max_batch: Annotated[int, typer.Option(help="Inputs of a batch.", rich_help_panel=LIMITS)] = DEFAULTS.batch,
    max_delay: Annotated[
        float, typer.Option(help="Milliseconds that a request waits for others.", rich_help_panel=LIMITS)
    ] = DEFAULTS.delay,
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level to log.", rich_help_panel=LOG)] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="Text or JSON.", rich_help_panel=LOG)] = LogFormat.PLAIN,
) -> None:
    """Serve a model over HTTP until it is stopped: POST /v1/predict returns a class or unknown for each input.

    If the environment variable OPENRADIAL_TOKEN is set, clients must send it as "Authorization: Bearer ...".
    """
    import torch

    from openradial.server import Service, auth, create_app, http_server, monitoring

    limits = Limits(max_body, max_pixels, max_items, max_steps, max_queue, max_batch, max_delay)
    token = auth.token_from_environment()
    auth.check_exposure(host, token, without_token=without_token)
    cores = max(1, (os.cpu_count() or 1) - 1) if threads is None else threads
    check_count("threads", cores)
    torch.set_num_threads(cores)
    service = Service(open_model(model, module), limits, token)
    monitoring.configure_logging(log_level, log_format)
    with http_server.listen(host, port) as listening:
        url = http_server.url_of(listening)
        typer.echo(f"{model} at {url}, described at {url}/docs")
        http_server.serve(create_app(service), listening, limits=limits, grace=grace)
