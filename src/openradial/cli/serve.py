"""``openradial serve``: serve a model over HTTP."""

import os
from functools import partial
from typing import Annotated

import typer

from openradial.cli.modules import Model, Modules, Port, open_model
from openradial.errors import check_count
from openradial.server.settings import LOCAL_HOSTS, Limits, LogFormat, LogLevel, check_exposure, token_from_environment

limit, log = (partial(typer.Option, rich_help_panel=panel) for panel in ("Limits", "Log"))
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
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Host header to accept besides those of this computer and --host; * accepts all."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of the model; by default one less than there are cores.")
    ] = None,
    grace: Annotated[int, typer.Option(help="Seconds to finish accepted requests at shutdown.", min=0)] = 30,
    module: Modules = None,
    max_body: Annotated[int, limit(help="Bytes of a request.")] = DEFAULTS.body,
    max_pixels: Annotated[int, limit(help="Pixels of all images of a request.")] = DEFAULTS.pixels,
    max_items: Annotated[int, limit(help="Inputs of a request.")] = DEFAULTS.items,
    max_steps: Annotated[int, limit(help="Steps of a sequence, words of a text.")] = DEFAULTS.steps,
    max_queue: Annotated[int, limit(help="Inputs in the queue.")] = DEFAULTS.queue,
    max_batch: Annotated[int, limit(help="Inputs of a batch.")] = DEFAULTS.batch,
    max_delay: Annotated[float, limit(help="Milliseconds that a request waits for others.")] = DEFAULTS.delay,
    log_level: Annotated[LogLevel, log(help="Lowest level to log.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, log(help="Text or JSON.")] = LogFormat.PLAIN,
) -> None:
    """Serve a model over HTTP until it is stopped: POST /v1/predict returns a class or unknown for each input.

    If the environment variable OPENRADIAL_TOKEN is set, clients must send it as "Authorization: Bearer ...".
    """
    import torch

    from openradial.server import Service, create_app, http_server, monitoring

    limits = Limits(max_body, max_pixels, max_items, max_steps, max_queue, max_batch, max_delay)
    token = token_from_environment()
    check_exposure(host, token, without_token=without_token)
    cores = max(1, (os.cpu_count() or 1) - 1) if threads is None else threads
    check_count("threads", cores)
    torch.set_num_threads(cores)
    hosts = (*LOCAL_HOSTS, f"[{host}]" if ":" in host else host, *(allowed_host or ()))
    service = Service(open_model(model, module), limits, token, hosts)
    monitoring.configure_logging(log_level, log_format)
    with http_server.listen(host, port) as listening:
        url = http_server.url_of(listening)
        typer.echo(f"{model} at {url}, described at {url}/docs")
        http_server.serve(create_app(service), listening, limits=limits, grace=grace)
