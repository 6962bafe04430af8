"""Send requests made from the OpenAPI description to every endpoint.

python tests/fuzz/endpoints.py REQUESTS SECONDS COUNTS FOUND

Needs schemathesis. Each kind of model is served by ``openradial serve``, and the playground by ``openradial play``, on
127.0.0.1. Requests that follow the description and requests that break it get the statuses and bodies it names, and
never a 5xx.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import hypothesis
import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / each) for each in ("", "bundle", "fuzz")]
MODELS = ("image", "table", "point", "sequence", "text")
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
UNDOCUMENTED = {404, 405}  # of paths and methods that do not exist

NAME = {"name": "name", "in": "path", "required": True, "schema": {"enum": ["nothing", "a b", "1", "%2e%2e"]}}


def number(name, where="query", kind="number"):
    return {"name": name, "in": where, "required": True, "schema": {"type": kind}}


def operation(*parameters, body=None):
    made = {"parameters": list(parameters), "responses": {"default": {"description": "any"}}}
    if body is not None:
        made["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind, schema in body.items()}}
    return made


SETTINGS = {"type": "object", "properties": {"epochs": {"type": "integer"}, "hidden": {"type": "integer"}}}
PLAYGROUND = {  # the page's own routes, which the service does not describe
    "openapi": "3.1.0",
    "info": {"title": "playground", "version": "1"},
    "paths": {
        "/": {"get": operation()},
        "/play/model": {"get": operation()},
        "/play/sentence": {"post": operation(body={"application/json": {"type": "object"}})},
        "/play/spiral": {"post": operation(body={"application/json": SETTINGS})},
        "/play/spiral/{name}/events": {"get": operation(NAME)},
        "/play/spiral/{name}/frames/{frame}": {"get": operation(NAME, number("frame", "path", "integer"))},
        "/play/spiral/{name}/at": {"get": operation(NAME, number("frame", kind="integer"), number("x"), number("y"))},
        "/play/spiral/{name}/pause": {"post": operation(NAME)},
        "/play/spiral/{name}/resume": {"post": operation(NAME)},
        "/play/spiral/{name}": {"delete": operation(NAME)},
        "/play/digits": {
            "get": operation(),
            "post": operation(body={"application/octet-stream": {"type": "string", "format": "binary"}}),
        },
    },
}


@contextmanager
def server(*arguments):
    """Start a command that prints its address first."""
    command = [sys.executable, "-m", "openradial", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = re.search(r"http://[\w.:]+", process.stdout.readline())[0].replace("0.0.0.0", "127.0.0.1")
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/readyz", timeout=5).read()
                break
            except OSError:
                time.sleep(0.1)
        yield url
        assert process.poll() is None, "the server has ended"
        assert requests.get(f"{url}/healthz", timeout=60).status_code == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def send_one(url, session, counts, name, end, case):
    if time.monotonic() > end:
        return
    counts[name] += 1
    response = case.call(base_url=url, session=session, timeout=120)
    if response.status_code not in UNDOCUMENTED:
        case.validate_response(response, checks=CHECKS)


def attack(schema, url, what, examples, seconds, counts, found, session):
    """Try all operations with requests that follow the description, and with others."""
    operations = [each.ok() for each in schema.get_all_operations()]
    for each in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            name = f"{what} {each.method.upper()} {each.path}"
            send = partial(send_one, url, session, counts, name, time.monotonic() + seconds)
            try:
                run = hypothesis.given(case=each.as_strategy(generation_mode=mode))(lambda case: send(case))  # noqa: B023
                every = list(hypothesis.HealthCheck)
                limits = {"max_examples": examples, "deadline": None, "database": None}
                hypothesis.settings(**limits, suppress_health_check=every)(run)()
            except hypothesis.errors.Unsatisfiable:  # a request without parameters cannot break the description
                continue
            except Exception:
                (found / re.sub(r"\W+", "-", f"{name} {mode.value}.txt")).write_text(traceback.format_exc())


def main() -> None:
    import made_bundles

    from openradial.bundle import save

    examples, seconds, out, found = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, requests.Session() as session:
        for kind in MODELS:
            path = save(getattr(made_bundles, f"{kind}_bundle")(), Path(folder) / kind)
            with server("serve", path) as url:
                schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
                attack(schema, url, kind, examples, seconds, counts, found, session)
            out.write_text(json.dumps(counts, indent=1))
        with server("play") as url:
            schema = schemathesis.openapi.from_dict(PLAYGROUND)
            attack(schema, url, "playground", examples, seconds, counts, found, session)
    out.write_text(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
