"""Full disk, read-only disk, two processes on one cache, mirrors that misbehave, a killed rank: one sentence each.

python tests/faults/environment.py RESULT. Disks are small tmpfs mounts, which need root; without it they are left out,
and the result says so. Servers are on 127.0.0.1.
"""

import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import pytest
from kills import IMPORTED, command, digest, forked, table

CHECKS = {}
MINUTE = 60.0  # within which the other ranks must end


def check(function):
    CHECKS[function.__name__.replace("_", " ")] = function
    return function


@contextmanager
def disk(folder, size):
    """Mount a small disk."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fit(data, out, *options):
    return command("fit", data, "--label", "kind", "--out", out, "--no-baseline", *options)


def refused(work, folder, *facts):
    """Run a command that must fail with one sentence that states the facts."""
    code, text, *_ = forked(work, folder)
    assert code in (1, 2), f"exit code {code}: {text[-1500:]}"
    assert "Traceback" not in text, text[-1500:]
    errors = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, text[-1500:]
    assert all(fact in errors[0] for fact in facts), errors[0]
    return errors[0]


def commands(model, data, out):
    """Return the commands that write, with their outputs on a disk."""
    return {
        "fit": fit(data, out / "other"),
        "fit --overwrite": fit(data, out / "model", "--overwrite"),
        "evaluate": command("evaluate", model, "--known", data, "--label", "kind", "--out", out / "report"),
        "export": command("export", model, "--to", "torch", "--out", out / "m.pt2"),
    }


@check
def full_disk(folder):
    """A disk without a free byte, and one that becomes full while a bundle is written."""
    data, model = table(folder / "t.csv"), folder / "model"
    code, text, *_ = forked(fit(data, model), folder)
    assert code == 0, text
    said = []
    with disk(folder / "disk", 2048) as out:
        shutil.copytree(model, out / "model")
        before = digest(out / "model")
        with suppress(OSError):
            (out / "rest").write_bytes(bytes(2 * 2**20))
        said += [refused(work, folder) for work in commands(model, data, out).values()]
        assert digest(out / "model") == before
    with disk(folder / "disk2", 1100) as out:  # enough for the check at the start, not for the bundle
        shutil.copytree(model, out / "model")
        before = digest(out / "model")

        def large():
            import openradial.files as files

            files.LEAST = 0
            files.writable.__defaults__ = (0,)
            (out / "rest").write_bytes(bytes(shutil.disk_usage(out).free - 12_000))
            return fit(data, out / "model", "--overwrite")()

        said.append(refused(large, folder))
        assert digest(out / "model") == before
    return said


@check
def read_only_disk(folder):
    data, model = table(folder / "t.csv"), folder / "model"
    code, text, *_ = forked(fit(data, model), folder)
    assert code == 0, text
    with disk(folder / "disk", 4096) as out:
        shutil.copytree(model, out / "model")
        before = digest(out / "model")
        subprocess.run(["mount", "-o", "remount,ro", str(out)], check=True)
        said = [refused(work, folder) for work in commands(model, data, out).values()]
        assert digest(out / "model") == before
    return said


class Mirror(http.server.BaseHTTPRequestHandler):
    """A mirror, a pip index and an npm registry that answers everything in its bad way."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        kind, self.server.asked = self.server.kind, self.server.asked + 1
        body = self.server.content if kind in ("good", "truncates") else os.urandom(5000)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind == "stalls":
            self.server.released.wait(120)
        with suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if kind == "truncates" else body)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@contextmanager
def mirror(kind, content=b"letters" * 1000):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        server.kind, server.content, server.asked, server.released = kind, content, 0, threading.Event()
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()


@check
def mirrors_that_misbehave(folder):
    """A mirror, pip and npm: garbage, half a file, silence. Nothing is kept, and the error names the reason."""
    from openradial.data.download import Mirror as Address
    from openradial.data.download import Package, Source, clients, fetch
    from openradial.errors import FetchError

    said = []
    pinned = {"letters.bin": f"sha256:{hashlib.sha256(b'letters' * 1000).hexdigest()}"}
    clients.TIMEOUT = 3
    os.environ["OPENRADIAL_CACHE"] = str(folder / "cache")
    options = {"PIP_RETRIES": "0", "PIP_TIMEOUT": "5", "PIP_CONFIG_FILE": os.devnull, "npm_config_fetch_retries": "0"}
    os.environ.update(options)
    for kind in ("garbage", "truncates", "stalls"):
        clients.CLIENT_TIMEOUT = 30 if kind == "stalls" else 240  # pip takes long to start on a busy machine
        with mirror(kind) as server:
            os.environ.update({"PIP_INDEX_URL": f"{server.url}/simple", "npm_config_registry": server.url})
            origins = [Address(server.url, "{}"), Package("pip", "letters", "1.0", "letters/{}")]
            origins += [Package("npm", "letters", "1.0", "package/{}")] if shutil.which("npm") else []
            for origin in origins:
                source = Source("letters", "Letters", pinned, (origin,), 1000, "CC0", "https://example.org")
                with pytest.raises(FetchError) as caught:
                    fetch(source)
                message = str(caught.value)
                assert "\n" not in message
                said.append(f"{getattr(origin, 'client', 'mirror')}, {kind}: {message.partition('(')[2][:160]}")
                assert not (folder / "cache" / "data" / "letters").exists(), "something was kept"
                assert not list((folder / "cache" / "data").glob("*.part")), "a temporary folder was left"
    return said


@check
def two_processes_on_one_cache(folder):
    """Four processes want one data set: it is fetched once. Four write features, and a small limit removes some."""
    from openradial.data.download import Mirror as Address
    from openradial.data.download import Source, fetch

    os.environ["OPENRADIAL_CACHE"] = str(folder / "cache")
    pinned = {"letters.bin": f"sha256:{hashlib.sha256(b'letters' * 1000).hexdigest()}"}
    with mirror("good") as server:
        source = Source("letters", "Letters", pinned, (Address(server.url, "{}"),), 1000, "CC0", "https://example.org")
        codes = at_once(lambda: fetch(source) and 0)
        assert codes == [0] * 4, codes
        assert server.asked == 1, f"fetched {server.asked} times"

    def write():
        import torch

        from openradial.encoders.cache import FeatureCache

        os.environ["OPENRADIAL_FEATURES"] = "1"
        cache = FeatureCache("encoder")
        keys = [bytes([i]) * 32 for i in range(100)]
        for i in range(20):
            cache.write({key: torch.full((1024,), float(key[0])) for key in keys[i : i + 40]})
            assert all(bool((row == key[0]).all()) for key, row in cache.read(keys).items())

    codes = at_once(write)
    assert codes == [0] * 4, codes
    return ["fetched once by four processes", "features of four processes read back without a difference"]


def at_once(work):
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                code = work() or 0
            except BaseException:
                traceback.print_exc()
                code = 99
            os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@check
def two_runs_to_one_folder(folder):
    """The second ``fit`` to a folder ends with a sentence; the first one is not disturbed."""
    from openradial.files import only_process

    data = table(folder / "t.csv")
    with only_process(folder / "model"):
        return [refused(fit(data, folder / "model"), folder, "another process")]


def is_running(pid):
    """Return whether a process exists and has not ended: one that nobody has waited for yet is a zombie, state Z."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@check
def killed_rank(folder):
    """Kill one of two processes that train together: the job ends with a message within a minute."""
    data = table(folder / "t.csv", 400)
    arguments = ["fit", data, "--label", "kind", "--out", folder / "model", "--method", "gradient", "--no-baseline"]
    arguments += ["--epochs", "1000000", "--devices", "2", "--accelerator", "cpu"]
    log = folder / "log"
    with log.open("wb") as out:
        main = subprocess.Popen(
            [sys.executable, "-m", "openradial", *map(str, arguments)], stdout=out, stderr=subprocess.STDOUT
        )
        try:
            end = time.monotonic() + 900
            while not (folder / "model.training" / "last.safetensors").exists():
                assert main.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < end, "no checkpoint was written"
                time.sleep(0.2)
            ranks = [pid for pid in below(main.pid) if is_rank(pid)]
            assert ranks, "no second rank was found"
            os.kill(ranks[-1], signal.SIGKILL)
            start = time.monotonic()
            code = main.wait(600)
            seconds = time.monotonic() - start
        finally:
            main.kill()
    text = log.read_text(errors="replace")
    assert code != 0
    assert seconds < MINUTE, f"the job ended after {seconds:.0f} s"
    while time.monotonic() - start < MINUTE and any(map(is_running, ranks)):
        time.sleep(0.1)
    assert not any(map(is_running, ranks)), "a rank is left"
    lines = [line for line in text.splitlines() if line.strip()]
    assert any("error" in line.lower() for line in lines), text[-2000:]
    return [f"ended after {seconds:.1f} s with exit code {code}: {lines[-1][:300]}"]


def below(parent):
    """Return the processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found += [int(path.parent.name), *below(int(path.parent.name))]
    return found


def is_rank(pid):
    with suppress(OSError):
        return (
            re.search(rb"RANK=1\b", Path(f"/proc/{pid}/environ").read_bytes()) is not None
            or b"openradial" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
    return False


def main() -> None:
    import torch

    torch.set_num_threads(1)
    for module in IMPORTED:
        import_module(module)
    result, names = Path(sys.argv[1]), sys.argv[2:] or list(CHECKS)
    results = {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="openradial-faults-") as folder:
            try:
                results[name] = {"holds": True, "messages": CHECKS[name](Path(folder))}
            except Exception:
                results[name] = {"holds": False, "error": traceback.format_exc()[-3000:]}
        print(name, results[name], flush=True)
        result.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
