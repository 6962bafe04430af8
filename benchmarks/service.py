"""Measure the service beside the same model in a plain loop and write benchmarks/results/service.{json,md}.

python -m benchmarks.service, --quick for quick mode. benchmarks.soak sends valid and hostile requests for a long time.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.service_load import Request, load
from benchmarks.service_requests import good_requests, parsed
from openradial import data
from openradial.bundle import load as load_bundle
from openradial.bundle import save
from openradial.classifier import OpenClassifier
from openradial.data import Batches, Examples
from openradial.data.inputs import ImageInputs
from openradial.files import write_text
from openradial.fitting import calibrate
from openradial.models import build
from openradial.recipe import REFERENCES, default_recipe

NETWORK, CLIENTS, AT_LEAST = "mnist_radial", 32, 3.0  # times the plain loop's requests per second: set before measuring
SERVICE, LOOP, PLAIN = "openradial serve", "plain loop, no HTTP", "FastAPI, one by one"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description="Measure the service.")
    parser.add_argument("--quick", action="store_true", help="one short round; for trying it out, not for the docs")
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)  # run the rival that has no batches
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    if options.plain is not None:
        return run_plain(options.plain)
    options.out.mkdir(parents=True, exist_ok=True)
    rounds, seconds = (1, 2.0) if options.quick else (5, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        model = save(mnist_bundle(), Path(folder) / "model")
        results: dict[str, Any] = {"environment": environment()}
        results["kinds"] = {kind: measure(model, kind, rounds, seconds) for kind in ("PNG", "JSON")}
        results["environment"]["load_average_at_end"] = os.getloadavg()[1]
    write_text(options.out / "service.json", json.dumps(results, indent=1) + "\n")
    write_text(options.out / "service.md", markdown(results))
    print((options.out / "service.md").read_text())
    return None


def mnist_bundle() -> OpenClassifier:
    """Return the MNIST network as a bundle like those of openradial fit; speed does not depend on its weights."""
    torch.manual_seed(0)
    known = data.load("mnist")
    inputs = ImageInputs(28, 1, mean=(0.1307,), std=(0.3081,))
    net = build(NETWORK, len(known.classes))
    recipe = default_recipe(net, NETWORK, "images")
    head = recipe.make_head(len(known.classes))
    train, combination, calibration = (held_out(known, inputs, part) for part in (0, 1, 2))
    model = calibrate(net, head, recipe, 0.05, train=train, combination=combination, calibration=calibration)
    return model.replace(network=(NETWORK, {}), classes=known.classes, preprocessing=inputs)


def held_out(known: Examples, inputs: ImageInputs, part: int) -> Batches:
    """Return one of several disjoint parts of the training data."""
    indices = torch.arange(part * REFERENCES, (part + 1) * REFERENCES)
    return Batches(known.select(indices), 1000, transform=inputs.normalise(), shuffle=False)


def measure(model: Path, kind: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure the requests per second of all three, in turn, round by round."""
    requests = good_requests(kind)
    runs_of: dict[str, list[dict[str, float]]] = {SERVICE: [], LOOP: [], PLAIN: []}
    with running(serve_command(model)) as service, running(plain_command(model)) as plain:
        memory = {"start_mb": megabytes(service.pid)}
        bundle = load_bundle(model)
        for server in (service, plain):
            warm_up(server, requests)
        for _ in range(rounds):
            runs_of[LOOP].append(
                max(
                    (looped(bundle, requests, n, seconds / 2) for n in (1, os.cpu_count() or 1)),
                    key=lambda one: one["rps"],
                )
            )
            runs_of[SERVICE].append(asked(service, requests, seconds))
            runs_of[PLAIN].append(asked(plain, requests, seconds))
        memory |= {"end_mb": megabytes(service.pid), "peak_mb": megabytes(service.pid, "VmHWM")}
    summary = {
        name: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for name, runs in runs_of.items()
    }
    gain = statistics.median(a["rps"] / b["rps"] for a, b in zip(runs_of[SERVICE], runs_of[LOOP], strict=True))
    return {"rounds": rounds, "seconds": seconds, "rivals": summary, "gain": gain, "memory": memory}


def looped(bundle: OpenClassifier, requests: list[Request], threads: int, seconds: float) -> dict[str, float]:
    """Predict one request after the other in this process: from the body to the JSON of the response."""
    torch.set_num_threads(threads)
    bodies = [parsed(request.data) for request in requests]
    times: list[float] = []
    start, used = time.perf_counter(), time.process_time()
    for body in cycle(bodies):
        begun = time.perf_counter()
        if begun > start + seconds:
            break
        json.dumps([each.as_dict() for each in bundle.predict(body())])
        times.append(time.perf_counter() - begun)
    return summarised(times, seconds, time.process_time() - used)


def warm_up(server: "Running", requests: list[Request]) -> None:
    """Wait until each client could have one answer: the first requests of a process take longer.

    Answers of all rounds count, because a busy machine may never give so many in one.
    """
    answered = 0
    while answered < CLIENTS:
        tally = load(server.address, requests, CLIENTS, 2.0)
        answered += len(tally.seconds)
        if tally.wrong or server.process.poll() is not None:
            raise RuntimeError(f"the server has ended, or good requests were not served: {dict(tally.wrong)}")


def asked(server: "Running", requests: list[Request], seconds: float) -> dict[str, float]:
    used = server.seconds_used()
    tally = load(server.address, requests, CLIENTS, seconds)
    if tally.wrong:
        raise RuntimeError(f"good requests were not served: {tally.wrong}")
    return summarised(tally.seconds, seconds, server.seconds_used() - used)


def summarised(times: list[float], seconds: float, used: float) -> dict[str, float]:
    """``used`` are seconds of all cores together."""
    cuts = statistics.quantiles(times, n=100)
    cost = 1000 * used / len(times)
    return {"rps": len(times) / seconds, "p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98], "cpu_ms": cost}


class Running:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.pid, self.address = process, process.pid, ("127.0.0.1", port)

    def seconds_used(self) -> float:
        """Seconds of all cores together, so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(command: list[str]) -> Iterator[Running]:
    """Start a server that says where it listens in its first line; its log is thrown away."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)", process.stdout.readline())
        if match is None:
            raise RuntimeError(f"this server did not start: {' '.join(command)}")
        server = Running(process, int(match[1]))
        wait_for(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(300)  # a busy machine may take its time


def wait_for(server: Running) -> None:
    for _ in range(600):
        try:
            asyncio.run(asyncio.open_connection(*server.address))
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def serve_command(model: Path) -> list[str]:
    return [sys.executable, "-m", "openradial", "serve", str(model), "--port", "0"]


def plain_command(model: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.service", "--plain", str(model)]


def run_plain(model: Path) -> None:
    """What one writes first: an endpoint that calls the model for each request."""
    import uvicorn
    from fastapi import FastAPI, Request

    from openradial.server.http_server import listen, url_of

    app, bundle = FastAPI(), load_bundle(model)

    @app.post("/v1/predict")
    async def predict(request: Request) -> dict[str, Any]:
        body = await request.body()
        is_json = request.headers["content-type"] == "application/json"
        return {"predictions": [each.as_dict() for each in bundle.predict(parsed(body, is_json=is_json)())]}

    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))
    opened = listen("127.0.0.1", 0)
    print(url_of(opened), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([opened])


def megabytes(pid: int, name: str = "VmRSS") -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"{name}:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) / 1024


def environment() -> dict[str, Any]:
    return machine(" ".join(["python -m benchmarks.service", *sys.argv[1:]])) | {
        "load_average_at_start": os.getloadavg()[1],
    }


def markdown(results: dict[str, Any]) -> str:
    env = results["environment"]
    lines = [
        f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch {env['torch']}, "
        f"Python {env['python']}. Load average at the start {env['load_average_at_start']:.1f}, at the end "
        f"{env['load_average_at_end']:.1f}. The MNIST network with the preprocessing, scorers and "
        "calibration of `openradial fit`; clients, "
        f"service and rivals on the same cores. {CLIENTS} parallel clients, each with one image per request; the plain "
        "loop has one request after the other, no HTTP, and as many threads as are best for it.",
    ]
    for kind, result in results["kinds"].items():
        lines += ["", f"**One image as {kind}**, medians of {result['rounds']} rounds", "", *rival_table(result), ""]
        holds = "holds" if result["gain"] >= AT_LEAST else "DOES NOT HOLD"
        memory = result["memory"]
        lines += [
            f"Service to plain loop: {result['gain']:.1f} x the requests per second; at least {AT_LEAST:g} x {holds}. "
            f"Memory of the service: {memory['start_mb']:.0f} MB at the start, {memory['end_mb']:.0f} MB at the end, "
            f"{memory['peak_mb']:.0f} MB at most."
        ]
    return "\n".join([*lines, ""])


def rival_table(result: dict[str, Any]) -> list[str]:
    rows = [
        [name, f"{one['rps']:,.0f}", f"{one['p50_ms']:.1f}", f"{one['p99_ms']:.1f}", f"{one['cpu_ms']:.2f}"]
        for name, one in result["rivals"].items()
    ]
    return table(["", "requests per second", "p50, ms", "p99, ms", "core time per request, ms"], rows)


if __name__ == "__main__":
    main()
