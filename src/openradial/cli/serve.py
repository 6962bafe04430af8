"""``openradial serve``: a model's predictions over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import torch
import typer

from openradial.cli.modules import Modules, open_model
from openradial.errors import check_count
from openradial.server import Limits, Service, create_app, logs, running

SIZES, LOG = "Limits", "Log"
USUAL = Limits()


def serve_command(
    model: Annotated[Path, typer.Argument(help="The folder of a model, as openradial fit writes it.")],
    host: Annotated[str, typer.Option(help="The address to listen on; others than this computer need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 is any free port.", min=0, max=65535)] = 8000,
    without_token: Annotated[
        bool, typer.Option("--without-token", help="Let everybody in, on whatever address.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(help="Cores for the model; by default all but one, which serves the clients.")
    ] = None,
    grace: Annotated[int, typer.Option(help="Seconds for what was taken, when the service stops.", min=0)] = 30,
    module: Modules = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.", rich_help_panel=SIZES)] = USUAL.body,
    max_pixels: Annotated[int, typer.Option(help="Pixels of an image.", rich_help_panel=SIZES)] = USUAL.pixels,
    max_items: Annotated[int, typer.Option(help="Inputs of a request.", rich_help_panel=SIZES)] = USUAL.items,
    max_steps: Annotated[
        int, typer.Option(help="Steps of a sequence, words of a text.", rich_help_panel=SIZES)
    ] = USUAL.steps,
    max_queue: Annotated[int, typer.Option(help="Inputs that wait for the model.", rich_help_panel=SIZES)] = (
        USUAL.queue
    ),
    max_batch: Annotated[int, typer.Option(help="Inputs that are predicted at once.", rich_help_panel=SIZES)] = (
        USUAL.batch
    ),
    max_delay: Annotated[
        float, typer.Option(help="Milliseconds that a request waits for others.", rich_help_panel=SIZES)
    ] = USUAL.delay,
    log_level: Annotated[logs.Level, typer.Option(help="What is written.", rich_help_panel=LOG)] = logs.Level.INFO,
    log_format: Annotated[
        logs.Form, typer.Option(help="Lines for people, or as JSON.", rich_help_panel=LOG)
    ] = logs.Form.PLAIN,
) -> None:
    """Serve a model over HTTP until it is told to stop: POST /v1/predict says a class or unknown for each input.

    Clients send "Authorization: Bearer ..." with what the environment variable OPENRADIAL_TOKEN holds, where it is set.
    """
    limits = Limits(max_body, max_pixels, max_items, max_steps, max_queue, max_batch, max_delay)
    token = running.token_from_environment()
    running.check_exposure(host, token, without_token=without_token)
    cores = max(1, (os.cpu_count() or 1) - 1) if threads is None else threads
    check_count("threads", cores)
    torch.set_num_threads(cores)
    service = Service(open_model(model, module), limits, token)
    logs.set_up(log_level, log_format)
    with running.listen(host, port) as opened:
        typer.echo(f"{model} at {running.url_of(opened)}, described at {running.url_of(opened)}/docs")
        running.serve(create_app(service), opened, limits=limits, grace=grace)
