"""Start Python programs as forks of one process that has imported torch: a start takes milliseconds, not seconds.

Each fork is a process of its own: it can be killed, gets signals, and ends as any interpreter does, with ``atexit``.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODULES = (
    "lightning_fabric",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "openradial.functional",
    "openradial.nn",
    "openradial.training",
    "openradial.data",
)
SECONDS = 300  # a busy machine may take its time


@dataclass(frozen=True)
class Done:
    """How a program ended: negative for a signal, as in ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str


class Preloaded:
    """Runs programs; used by tests as the fixture ``programs``."""

    def __init__(self) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
        )

    def close(self) -> None:
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def run(self, *command: object, strict: bool = False) -> Done:
        """Run a program alone; ``strict`` makes its warnings errors."""
        return self._run([{"command": list(map(str, command)), "environment": {}, "strict": strict}])[0]

    def run_two(self, *command: object) -> list[Done]:
        """Run a program in two processes of one group, as ``torchrun`` does; if one fails, the other is killed."""
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        group = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is here, so no port can be taken by another program
            "TORCHELASTIC_RUN_ID": "test",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
        }
        return self._run(
            [
                {
                    "command": list(map(str, command)),
                    "environment": {**group, "RANK": rank, "LOCAL_RANK": rank},
                    "strict": False,
                }
                for rank in ("0", "1")
            ]
        )

    def _run(self, jobs: list[dict[str, object]]) -> list[Done]:
        with tempfile.TemporaryDirectory() as folder:
            for i, job in enumerate(jobs):
                job["output"] = [f"{folder}/{i}.out", f"{folder}/{i}.err"]
            self._server.stdin.write(json.dumps(jobs) + "\n")
            self._server.stdin.flush()
            codes = json.loads(self._server.stdout.readline())
            texts = [[Path(path).read_text() for path in job["output"]] for job in jobs]
        return [Done(code, *text) for code, text in zip(codes, texts, strict=True)]


def _serve() -> dict[str, object]:
    """Fork for every job that comes; return the job, in the fork."""
    for line in sys.stdin:
        children: list[int] = []
        for job in json.loads(line):
            child = os.fork()
            if child == 0:
                return job
            children.append(child)
        sys.stdout.write(json.dumps(_wait_for(children)) + "\n")
        sys.stdout.flush()
    os._exit(0)


def _wait_for(children: list[int]) -> list[int]:
    """Return the exit codes; when one fails or time is up, the others are killed."""
    codes: dict[int, int] = {}
    end = time.monotonic() + SECONDS
    while len(codes) < len(children):
        for child in set(children) - codes.keys():
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                codes[child] = os.waitstatus_to_exitcode(status)
        if any(codes.values()) or time.monotonic() > end:
            for child in set(children) - codes.keys():
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[child] for child in children]


if __name__ == "__main__":
    for _name in MODULES:
        importlib.import_module(_name)
    gc.freeze()  # forks need not look for cycles among the objects of torch, neither as they run nor at their end
    _job = _serve()
    for _target, _path in zip((1, 2), _job["output"], strict=True):
        os.dup2(os.open(_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), _target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(_job["environment"])
    if _job["strict"]:
        import warnings

        warnings.simplefilter("error")
    sys.argv = _job["command"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    exec(compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec"))
