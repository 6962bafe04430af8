"""Feed one target with mutated bytes, guided by the branches they reach.

python tests/fuzz/fuzzer.py NAME RUNS SECONDS FOUND

Needs atheris. What breaks the target is written to the folder FOUND, one file for each place in the code, and the run
continues. libFuzzer counts the runs and ends the process.
"""

import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / each) for each in ("", "bundle", "fuzz")]


def main() -> None:
    import atheris

    name, runs, seconds, found = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    import targets

    chosen = targets.TARGETS[name]
    with atheris.instrument_imports(include=list(chosen.modules), enable_loader_override=False):
        for data in chosen.seeds():  # imports what the target needs
            run(name, data, found, targets)
    corpus = targets.folder() / "corpus"
    corpus.mkdir()
    for i, data in enumerate(chosen.seeds()):
        (corpus / str(i)).write_bytes(data)
    limits = ["-timeout=120", "-rss_limit_mb=4096", "-print_final_stats=1", "-max_len=4096"]
    limits += ["-verbosity=0", f"-artifact_prefix={found}/{name}-"]
    atheris.Setup(
        [sys.argv[0], f"-runs={runs}", f"-max_total_time={seconds}", *limits, str(corpus)],
        lambda data: run(name, data, found, targets),
        internal_libfuzzer=True,
    )
    atheris.Fuzz()


def run(name, data, found, targets) -> None:
    try:
        targets.check(name, data)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "openradial" in frame.filename]
        place = f"{Path(frames[-1].filename).stem}-{frames[-1].lineno}" if frames else "nowhere"
        path = found / f"{name}-{type(error).__name__}-{place}"
        if not path.exists() or path.stat().st_size > len(data):
            path.write_bytes(data)
            path.with_suffix(".txt").write_text(traceback.format_exc())


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="Reading `.npy` or `.npz` file required additional header parsing")
    logging.disable()
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
