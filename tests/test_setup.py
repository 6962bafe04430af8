import os
import re
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "constraints.txt"
UNLOCKED = {"pip", "openradial"}  # pip comes with Python; openradial is what is being set up
FOR_GPUS = ("nvidia-", "cuda-", "triton")  # come with torch where pip takes its build for GPUs


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_versions() -> dict[str, str]:
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return {canonical(name): version for name, version in (line.split("==") for line in lines)}


def installed_versions() -> dict[str, str]:
    here = {canonical(d.name): d.version.partition("+")[0] for d in distributions(path=[sysconfig.get_path("purelib")])}
    return {name: version for name, version in here.items() if name not in UNLOCKED and not name.startswith(FOR_GPUS)}


@pytest.fixture
def project_environment():
    if Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests with {ROOT / '.venv'}, not {sys.prefix}")
    pytest.skip("not run from the project's .venv")


def test_every_locked_version_is_exact():
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.]*", version) for version in locked_versions().values())


@pytest.mark.usefixtures("project_environment")
def test_everything_installed_is_locked_to_its_version():
    locked = locked_versions()
    wrong = {
        name: (version, locked.get(name))
        for name, version in installed_versions().items()
        if locked.get(name) != version
    }
    assert not wrong, f"installed and locked versions differ: {wrong}"


@pytest.mark.usefixtures("project_environment")
def test_nothing_is_locked_that_the_set_up_does_not_install():
    assert locked_versions().keys() - installed_versions().keys() == set()


@pytest.mark.usefixtures("project_environment")
def test_every_locked_package_runs_on_the_oldest_python():
    """Debian 12 has Python 3.11.2: pip refuses a package for 3.11.5 there, and the set-up fails."""
    required = {d.name: d.metadata["Requires-Python"] for d in distributions(path=[sysconfig.get_path("purelib")])}
    assert {name for name, versions in required.items() if "3.11.0" not in SpecifierSet(versions or "")} == set()
