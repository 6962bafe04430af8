"""Run the numerical tests as other CPUs would: ``make test-cpus``, or ``python tests/cpus.py NAME ...``.

torch, oneDNN, MKL, OpenBLAS and NumPy can be told to use the kernels of older CPUs, and one or two threads. Five runs
hold every pair of these settings; two more imitate CPUs that are not at hand (rounding.py).
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
OTHERS = "data/download"  # it computes nothing

ATEN = {"old": {"ATEN_CPU_CAPABILITY": "default"}, "avx2": {"ATEN_CPU_CAPABILITY": "avx2"}}
ONEDNN = {"old": {"ONEDNN_MAX_CPU_ISA": "SSE41"}, "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"}}
MKL = {"old": {"MKL_CBWR": "COMPATIBLE"}, "own": {}}
NUMPY = {
    "old": {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3"},
    "avx2": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4"},
}
THREADS = {count: {"OPENRADIAL_TEST_THREADS": str(count), "OMP_WAIT_POLICY": "PASSIVE"} for count in (1, 2)}
RUNS = {
    "old": ATEN["old"] | ONEDNN["old"] | MKL["old"] | NUMPY["old"] | THREADS[1],
    "old-torch": ATEN["old"] | ONEDNN["avx2"] | MKL["own"] | NUMPY["avx2"] | THREADS[2],
    "old-onednn": ATEN["avx2"] | ONEDNN["old"] | MKL["own"] | NUMPY["old"] | THREADS[2],
    "old-mkl": ATEN["avx2"] | ONEDNN["avx2"] | MKL["old"] | NUMPY["old"] | THREADS[2],
    "avx2": ATEN["avx2"] | ONEDNN["avx2"] | MKL["own"] | NUMPY["avx2"] | THREADS[1],
    "other-batch": {"OPENRADIAL_TEST_ROUNDING": "tail"} | THREADS[1],
    "other-cpu": {"OPENRADIAL_TEST_ROUNDING": "all"} | THREADS[1],
}


def main() -> int:
    names = sys.argv[1:] or list(RUNS)
    if unknown := set(names) - RUNS.keys():
        sys.stderr.write(f"expected some of {', '.join(RUNS)}, got {', '.join(sorted(unknown))}\n")
        return 2
    console, table = Console(), Table("run", "settings", "result", "minutes")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not browser"]
    command.append(f"--ignore={ROOT / 'tests' / OTHERS}")
    failed = []
    for i, name in enumerate(names, 1):
        settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in RUNS[name].items())
        console.rule(f"{i} of {len(names)}: {name}")
        console.print(settings, highlight=False)
        start = time.monotonic()
        code = subprocess.run(command, cwd=ROOT, env={**os.environ, **RUNS[name]}).returncode
        table.add_row(name, settings, "failed" if code else "passed", f"{(time.monotonic() - start) / 60:.1f}")
        failed += [name] if code else []
    console.print(table)
    if failed:
        console.print(f"failed: {', '.join(failed)}; repeat one with: {sys.executable} tests/cpus.py {failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
