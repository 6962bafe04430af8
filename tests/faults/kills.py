"""Kill commands with SIGKILL at every change of a file, and at random moments; then look at what is left.

python tests/faults/kills.py SCENARIO KILLS RESULT. Each command is a fork of this process, which has imported torch, so
that a start takes milliseconds. An audit hook counts the files that a command opens for writing, renames and removes,
and kills the process just before one of them.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate"}
IMPORTED = ("openradial.cli.fit", "openradial.cli.evaluate", "openradial.cli.export", "openradial.fitting.pipeline")
IMPORTED += ("openradial.evaluation", "openradial.export", "openradial.training", "openradial.bundle", "torch.export")


class Killer:
    """Counts changes below a folder, and kills the process at one of them."""

    def __init__(self, folder, at):
        self.folder, self.at, self.count = os.fsencode(str(folder)), at, 0

    def __call__(self, event, arguments):
        is_write = event == "open" and bool((arguments[2] or 0) & WRITES)
        if not (is_write or event in CHANGES) or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if os.fsencode(arguments[0]).startswith(self.folder):
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGKILL)


def forked(work, folder, at=0, after=None):
    """Run a function in a fork; return its exit code, its output, the seconds and the number of changes it made."""
    output, counted = folder / ".output", folder / ".count"
    for path in (output, counted):
        path.unlink(missing_ok=True)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            handle = os.open(output, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            killer = Killer(folder / "work", at)
            sys.addaudithook(killer)
            try:
                code = work() or 0
            except SystemExit as error:
                code = error.code or 0
            sys.stdout.flush()
            counted.write_text(str(killer.count))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code if isinstance(code, int) else 1)
    if after is not None:
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    text = output.read_text(errors="replace") if output.exists() else ""
    return code, text, time.monotonic() - start, int(counted.read_text()) if counted.exists() else 0


def command(*arguments):
    """Return a function that runs the command line."""

    def work():
        from openradial.cli import main

        sys.argv = ["openradial", *map(str, arguments)]
        return main()

    return work


def digest(path):
    return hashlib.sha256(b"".join(each.read_bytes() for each in sorted(path.iterdir()))).hexdigest()


def table(path, rows=90):
    random.seed(0)
    lines = [
        f"{random.gauss(k, 0.2):.4f},{random.gauss(-k, 0.2):.4f},{'abc'[k]}" for k in range(3) for _ in range(rows)
    ]
    path.write_text("\n".join(["length,width,kind", *lines]) + "\n")
    return path


class Scenario:
    """A command, the state before it, and what must hold after it was killed."""

    def __init__(self, folder):
        self.folder, self.work = folder, folder / "work"
        self.base = folder / "base"
        self.base.mkdir()
        self.table = table(folder / "t.csv")
        self.prepare()

    def prepare(self):
        """Make the state in ``base``."""

    def reset(self):
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.base, self.work)

    def fitted(self, path, *options):
        code, text, *_ = forked(command("fit", self.table, "--label", "kind", "--out", path, *options), self.folder)
        assert code == 0, text


class Fit(Scenario):
    """``fit --overwrite``: a complete old or new bundle, and the new one once it was reported."""

    def prepare(self):
        self.fitted(self.base / "model", "--no-baseline")
        self.old = digest(self.base / "model")
        out, options = self.work / "model", ("--seed", "1", "--no-baseline", "--overwrite")
        self.run = command("fit", self.table, "--label", "kind", "--out", out, *options)

    def check(self, code, text):
        from openradial.bundle import load

        kept = self.work / ".model.old"  # between two renames
        found = self.work / "model" if (self.work / "model").exists() else kept
        load(found)
        if "model in" in text:
            assert digest(found) != self.old, "reported as saved, and lost"

    def finish(self):
        code, text, *_ = forked(self.run, self.folder)
        assert code == 0, text
        self.check(0, "model in")
        names = {path.name for path in self.work.iterdir()}
        assert names == {"model"}, f"left behind: {names}"


class Resume(Scenario):
    """A training run that is killed again and again: each checkpoint is complete, and the last run ends it."""

    def prepare(self):
        self.epoch = -1

    def run(self):
        small = ["--method", "gradient", "--epochs", "6", "--checkpoint-seconds", "0.001", "--no-baseline"]
        small += ["--resume"] * (self.work / "model.training" / "last.safetensors").exists()
        return command("fit", self.table, "--label", "kind", "--out", self.work / "model", *small)()

    def reset(self):
        if not self.work.exists() or (self.work / "model").exists():  # else go on with the run that was killed
            super().reset()
            self.epoch = -1

    def check(self, code, text):
        from openradial.training.checkpoint import load

        last = self.work / "model.training" / "last.safetensors"
        if last.exists():
            epoch = load(last)[1]["position"]["epoch"]
            assert epoch >= self.epoch, f"epoch {self.epoch} was saved, and {epoch} is left"
            self.epoch = epoch
        if "model in" in text:
            from openradial.bundle import load as load_bundle

            load_bundle(self.work / "model")

    def finish(self):
        if not (self.work / "model").exists():  # else the run had ended when it was killed
            code, text, *_ = forked(self.run, self.folder)
            assert code == 0, text
        self.check(0, "model in")


class Export(Scenario):
    """``export``: the complete old file or the complete new one."""

    def prepare(self):
        self.fitted(self.base / "model", "--no-baseline")
        (self.base / "m.pt2").write_bytes(b"old")
        self.run = command("export", self.work / "model", "--to", "torch", "--out", self.work / "m.pt2")

    def check(self, code, text):
        content = (self.work / "m.pt2").read_bytes()
        if content == b"old":
            assert "written:" not in text, "reported as written, and lost"
            return
        with zipfile.ZipFile(self.work / "m.pt2") as archive:
            assert archive.testzip() is None

    def finish(self):
        code, text, *_ = forked(self.run, self.folder)
        assert code == 0, text
        self.check(0, text)


class Evaluate(Scenario):
    """``evaluate --out``: each file of the report is the complete old one or the complete new one."""

    def prepare(self):
        self.fitted(self.base / "model", "--no-baseline")
        self.run = command(
            "evaluate", self.work / "model", "--known", self.table, "--label", "kind", "--out", self.work / "report"
        )

    def check(self, code, text):
        report = self.work / "report"
        for path in report.iterdir() if report.exists() else ():
            if path.name.startswith("."):
                continue
            content = path.read_text()
            if path.suffix == ".json":
                json.loads(content)
            if path.suffix == ".html":
                assert content.rstrip().endswith("</html>"), "half a report"

    def finish(self):
        code, text, *_ = forked(self.run, self.folder)
        assert code == 0, text
        self.check(0, text)
        assert (self.work / "report" / "report.html").exists()


class Download(Scenario):
    """``data get``: a set that was reported is complete, and the next process gets one that was not."""

    def prepare(self):
        import subprocess

        from openradial.data.download import Mirror, Source

        content = {f"{name}.bin": random.Random(name).randbytes(300_000) for name in "abc"}
        served = self.folder / "served"
        served.mkdir()
        for name, data in content.items():
            (served / name).write_bytes(data)
        program = (
            "import http.server\n"
            "class Quiet(http.server.SimpleHTTPRequestHandler):\n    log_message = lambda *arguments: None\n"
            "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Quiet)\n"
            "print(server.server_address[1], flush=True)\nserver.serve_forever()"
        )
        self.server = subprocess.Popen([sys.executable, "-c", program], cwd=served, stdout=subprocess.PIPE, text=True)
        port = self.server.stdout.readline().strip()
        pinned = {name: f"sha256:{hashlib.sha256(data).hexdigest()}" for name, data in content.items()}
        mirror = Mirror(f"http://127.0.0.1:{port}", "{}")
        self.source = Source("letters", "Letters", pinned, (mirror,), 1000, "CC0", "https://example.org")
        os.environ["OPENRADIAL_CACHE"] = str(self.work)
        os.environ.pop("OPENRADIAL_DATA", None)

    def run(self):
        from openradial.data.download import fetch

        print(f"complete: {fetch(self.source)}", flush=True)

    def check(self, code, text):
        from openradial.data.download import check, fetch

        if "complete:" in text:
            fetch(self.source, download=False)
            assert not check(self.source)

    def finish(self):
        was_complete = (self.work / "data" / "letters" / "checked.json").exists()
        code, text, *_ = forked(self.run, self.folder)
        assert code == 0, text
        self.check(0, text)
        if was_complete:  # what is left of a scratch folder is removed by the next process that downloads
            return
        left = [path.name for path in (self.work / "data").glob("*.part")]
        assert not left, f"left behind: {left}"

    def close(self):
        self.server.terminate()


class Cache(Scenario):
    """Features: what was written is read again, and half a file never is."""

    def prepare(self):
        os.environ["OPENRADIAL_CACHE"] = str(self.work)

    def run(self):
        import torch

        from openradial.encoders.cache import FeatureCache

        cache = FeatureCache("encoder")
        for i in range(6):
            cache.write({bytes([i, j]) * 16: torch.full((64,), float(i)) for j in range(50)})
            print(f"written {i}", flush=True)

    def check(self, code, text):
        from openradial.encoders.cache import FeatureCache

        reported = [int(line.split()[1]) for line in text.splitlines() if line.startswith("written")]
        keys = [bytes([i, j]) * 16 for i in range(6) for j in range(50)]
        rows = FeatureCache("encoder").read(keys)
        assert all(bool((row == key[0]).all()) for key, row in rows.items())
        assert all(bytes([i, j]) * 16 in rows for i in reported for j in range(50)), "reported as written, and lost"

    def finish(self):
        code, text, *_ = forked(self.run, self.folder)
        assert code == 0, text
        self.check(0, text)


SCENARIOS = {each.__name__.lower(): each for each in (Fit, Resume, Export, Evaluate, Download, Cache)}


def main():
    import torch

    name, kills, result = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    for module in IMPORTED:
        import_module(module)
    if name == "export":  # imports what torch.export needs
        torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
    random.seed(1)
    failures, at_change, at_random, tries = [], 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="openradial-faults-") as folder:
        made = SCENARIOS[name](Path(folder))
        try:
            made.reset()
            code, text, seconds, changes = forked(made.run, made.folder)
            assert code == 0, text
            made.check(code, text)
            moments = random.sample(range(1, changes + 1), changes)
            while at_change + at_random < kills and tries < 4 * kills:
                tries += 1
                made.reset()
                # two at a change of a file, then one at a random moment
                where = {"at": moments[tries % len(moments)]} if tries % 3 else {"after": random.uniform(0, seconds)}
                code, text, *_ = forked(made.run, made.folder, **where)
                try:
                    if code == -signal.SIGKILL:
                        at_change, at_random = at_change + ("at" in where), at_random + ("after" in where)
                    else:  # it ended before the moment
                        assert code == 0, text
                    made.check(code, text)
                    if tries % 4 == 0:
                        made.finish()
                except Exception:
                    failures.append({"where": where, "output": text[-1500:], "error": traceback.format_exc()})
        except Exception:
            failures.append({"where": "before the first kill", "error": traceback.format_exc()})
        finally:
            getattr(made, "close", lambda: None)()
    counts = {"kills": at_change + at_random, "at_change": at_change, "at_random": at_random, "runs": tries}
    result.write_text(json.dumps({**counts, "failures": failures}))


if __name__ == "__main__":
    main()
