"""An optional compiled form of the loss, for small batches where the overhead of Python is most of the time.

Nothing is ever compiled behind the user's back: :func:`build` compiles ``native.cpp`` once, in about half a minute,
with the C++ compiler of the machine; from then on the result is found in the cache and used. Without it everything
works the same, by :mod:`.eager`.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from openradial.errors import BuildError
from openradial.files import cache_home

SOURCE = Path(__file__).with_name("native.cpp")
SWITCH = "OPENRADIAL_NATIVE"

Loss = Callable[[Tensor, Tensor, float, float, bool], Tensor]


def radial_loss() -> Loss | None:
    """The compiled kernel, or None where it was not built or is switched off by ``OPENRADIAL_NATIVE=0``."""
    return _found()


@cache
def _found() -> Loss | None:
    if os.environ.get(SWITCH) == "0" or not library().exists():
        return None
    try:
        return load(library())
    except OSError:  # damaged: the eager form serves
        return None


def load(path: Path) -> Loss:
    """The kernel in a compiled library."""
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    kernel: Loss = torch.ops.openradial.radial_loss.default
    return kernel


def library() -> Path:
    """Where the compiled kernel of this source, torch and machine lies."""
    parts = (SOURCE.read_text(), torch.__version__, sys.platform, platform.machine(), *_flags())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_home() / f"native-{digest}.so"


def build(compiler: str | None = None) -> Path:
    """Compile the kernel into the cache, atomically, and return its path; does nothing if it is there."""
    target = library()
    if target.exists():
        return target
    compiler = compiler or os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        raise BuildError(
            f"no C++ compiler {compiler!r} was found; install one or set CXX, or go on without: it is optional"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        run = subprocess.run(
            [compiler, *_flags(), str(SOURCE), *_libraries(), "-o", str(made)], capture_output=True, text=True
        )
        if run.returncode != 0:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            raise BuildError(f"{compiler} could not compile {SOURCE.name}: {last}; it is optional, go on without")
        _check_loads(made, compiler)
        made.replace(target)
    _found.cache_clear()
    return target


def _check_loads(made: Path, compiler: str) -> None:
    """Try the library in a process of its own, because loading cannot be undone."""
    program = "import sys, torch; torch.ops.load_library(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", program, str(made)], capture_output=True, text=True)
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise BuildError(
            f"what {compiler} made of {SOURCE.name} cannot be loaded: {last}; it is optional, go on without"
        )


def _flags() -> list[str]:
    root = Path(torch.__file__).parent
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return [
        "-O3", "-std=c++20", "-shared", "-fPIC",
        # elsewhere compilers come without the threads that torch uses
        "-fopenmp" if sys.platform == "linux" else "-fopenmp-simd",
        *(["-mavx2", "-mfma"] if wide else []),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{root / part}" for part in ("include", "include/torch/csrc/api/include")),
    ]  # fmt: skip


def _libraries() -> list[str]:
    return [f"-L{Path(torch.__file__).parent / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch"]
