"""Peak memory of one loss with its gradient, everything counted, in a process of its own.

python -m benchmarks.memory openradial 128 100000
"""

import json
import subprocess
import sys
from pathlib import Path


def peak_ratio(loss: str, n: int, k: int) -> float | None:
    """Peak growth of the process, in sizes of ``o``: ``o`` itself, its gradient and all that is needed between."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", loss, str(n), str(k)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(result.stdout)["ratio"])


def main(loss: str, n: int, k: int) -> None:
    import torch
    import torch.nn.functional as F

    from openradial import functional

    function = F.cross_entropy if loss == "cross_entropy" else functional.radial_loss
    y = torch.zeros(n, dtype=torch.int64)
    for width in (8, 2048):  # load every library and thread first
        function(torch.randn(n, width, requires_grad=True), y).backward()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    o = torch.randn(n, k, requires_grad=True)
    function(o, y).backward()
    grown = _status("VmHWM") - before
    print(json.dumps({"ratio": grown / o.nbytes}))


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
