"""Send valid and hostile requests to the service for a long time and write benchmarks/results/soak.{json,md}.

python -m benchmarks.soak, --minutes 1 for a short run. All traffic stays on 127.0.0.1.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.run import RESULTS, table
from benchmarks.service import CLIENTS, Running, looped, megabytes, mnist_bundle, running, serve_command, warm_up
from benchmarks.service_load import load
from benchmarks.service_requests import good_requests, mixed_requests
from openradial.bundle import load as load_bundle
from openradial.bundle import save
from openradial.files import write_text

MINUTES, ROUND = 30.0, 5.0  # of the run; seconds after which memory is read
GROWTH = 1.02  # of the memory from the second fifth to the last fifth, at most: set before measuring
SLOW = 50  # connections that send half a head and wait, beside the clients
PAUSE = 60.0  # seconds between two measurements of the plain loop, which share the cores with the service at rest


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long to send requests")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    environment = machine(" ".join(["python -m benchmarks.soak", *sys.argv[1:]]))
    environment["load_average_at_start"] = os.getloadavg()[1]
    with tempfile.TemporaryDirectory() as folder:
        results = soak(save(mnist_bundle(), Path(folder) / "model"), 60 * options.minutes)
    environment["load_average_at_end"] = os.getloadavg()[1]
    write_text(options.out / "soak.json", json.dumps({"environment": environment, **results}, indent=1) + "\n")
    write_text(options.out / "soak.md", markdown({"environment": environment, **results}))
    print((options.out / "soak.md").read_text())


def soak(model: Path, seconds: float) -> dict[str, Any]:
    """Ask for so long; every minute the plain loop and the valid requests alone are measured too."""
    mixed, good = mixed_requests(), good_requests("PNG")
    bundle, served, wrong = load_bundle(model), Counter[str](), Counter[str]()
    memory: list[float] = []
    times: dict[str, list[dict[str, float]]] = {"mixed": [], "valid": [], "loop": []}
    with running(serve_command(model)) as service:
        warm_up(service, good)
        start, next_comparison = time.monotonic(), 0.0
        while (elapsed := time.monotonic() - start) < seconds:
            if elapsed >= next_comparison:
                next_comparison = elapsed + PAUSE
                times["valid"].append(quantiles(load(service.address, good, CLIENTS, ROUND).seconds))
                times["loop"].append(looped(bundle, good, 1, ROUND))
            with slow_connections(service):
                tally = load(service.address, shifted(mixed, len(memory)), CLIENTS, ROUND)
            times["mixed"].append(quantiles(tally.seconds))
            served.update(tally.served)
            wrong.update(tally.wrong)
            memory.append(megabytes(service.pid))
        is_alive = service.process.poll() is None
    fifth = max(1, len(memory) // 5)
    return {
        "seconds": seconds,
        "served": dict(served),
        "wrong": dict(wrong),
        "alive": is_alive,
        "memory_mb": memory,
        "growth": max(memory[-fifth:]) / max(memory[fifth : 2 * fifth] or memory),
        "times": {name: summary(rounds) for name, rounds in times.items()},
    }


def shifted(requests: list[Any], number: int) -> list[Any]:
    """Return the requests in an order that differs between rounds, so that other ones meet."""
    return list(islice(cycle(requests), number % len(requests), number % len(requests) + len(requests)))


def slow_connections(service: Running) -> ExitStack:
    """Open connections that never finish the head of their request."""
    stack = ExitStack()
    for _ in range(SLOW):
        opened = stack.enter_context(socket.create_connection(service.address, timeout=30))
        with suppress(OSError):
            opened.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: local")
    return stack


def quantiles(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100)
    return {"rps": len(times) / ROUND, "p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}


def summary(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return medians over rounds, and the worst round's p99."""
    medians = {key: statistics.median(one[key] for one in rounds) for key in ("rps", "p50_ms", "p99_ms")}
    return medians | {"worst_p99_ms": max(one["p99_ms"] for one in rounds), "rounds": len(rounds)}


def markdown(results: dict[str, Any]) -> str:
    env, memory = results["environment"], results["memory_mb"]
    names = {
        "mixed": f"valid requests among hostile ones, {CLIENTS} clients",
        "valid": f"valid requests alone, {CLIENTS} clients",
        "loop": "plain loop, no HTTP, one input after the other",
    }
    rows = [
        [text, *(f"{results['times'][key][name]:,.1f}" for name in ("rps", "p50_ms", "p99_ms", "worst_p99_ms"))]
        for key, text in names.items()
    ]
    holds = results["growth"] <= GROWTH and not results["wrong"] and results["alive"]
    return "\n".join(
        [
            f"Written by `{env['command']}` on {env['date']}: {env['cpu']}, {env['cores']} cores, torch "
            f"{env['torch']}, Python {env['python']}; load average {env['load_average_at_start']:.1f} at the start, "
            f"{env['load_average_at_end']:.1f} at the end. {results['seconds'] / 60:g} minutes, {CLIENTS} clients and "
            f"{SLOW} connections that never finish a request, all on 127.0.0.1.",
            "",
            f"{sum(results['served'].values()):,} requests of {len(results['served'])} kinds were answered as they "
            f"must be, {sum(results['wrong'].values()):,} otherwise {results['wrong'] or ''}".rstrip()
            + ". "
            f"Memory of the service: {memory[0]:.0f} MB after the first {ROUND:g} s, {memory[-1]:.0f} MB at the end; "
            f"{results['growth']:.4f} x from the second fifth to the last, at most {GROWTH:g}: "
            f"{'holds' if holds else 'DOES NOT HOLD'}.",
            "",
            *table(["", "requests per second", "p50, ms", "p99, ms", "p99 of the worst round, ms"], rows),
            "",
            "Kinds: " + ", ".join(f"{name} {count:,}" for name, count in sorted(results["served"].items())) + ".",
            "",
        ]
    )


if __name__ == "__main__":
    main()
