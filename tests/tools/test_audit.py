import base64
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "audit.py"


def install(root, name, version, requires=()):
    """Write a package with one module into a folder, as pip would."""
    info = root / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    (root / f"{name}.py").write_text("x = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    (info / "RECORD").write_text(f"{name}.py,sha256={digest},6\n{info.name}/RECORD,,\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda root: None, None),
        (lambda root: (root / "aa.py").write_text("x = 2\n"), "aa: aa.py was changed after it was packaged"),
        (lambda root: (root / "aa.py").unlink(), "aa: aa.py is missing"),
        (lambda root: install(root, "bb", "0.5"), "bb: version 0.5 instead of 1.0"),
    ],
)
def test_packages_are_compared_with_lock_checksums_and_requirements(tmp_path, change, problem):
    root, lock = tmp_path / "site", tmp_path / "lock.txt"
    install(root, "aa", "1.0", ["bb>=1; extra == 'more'", "cc<2"])
    install(root, "cc", "1.5")
    change(root)
    lock.write_text("# pinned\naa==1.0\nbb==1.0\ncc==1.5; python_version > '3'\n")
    command = [sys.executable, SCRIPT, lock]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(root)})
    *problems, last = done.stdout.splitlines()
    assert problems == ([] if problem is None else [problem]), done.stderr
    assert last.endswith(f": {len(problems)} problems")
    assert done.returncode == len(problems)


def test_requirements_that_are_missing_or_too_old_are_named(tmp_path):
    install(tmp_path / "site", "aa", "1.0", ["nothing-of-this-name", "cc>=2"])
    install(tmp_path / "site", "cc", "1.5")
    (tmp_path / "lock.txt").write_text("aa==1.0\n")
    command = [sys.executable, SCRIPT, tmp_path / "lock.txt"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path / "site")})
    assert done.stdout.splitlines()[:-1] == [
        "aa: needs nothing-of-this-name, which is not installed",
        "aa: needs cc>=2, and 1.5 is installed",
    ]
