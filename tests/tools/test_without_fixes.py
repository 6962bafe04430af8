import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXES = runpy.run_path(str(ROOT / "tests" / "faults" / "without_fixes.py"))["FIXES"]


def test_every_fix_is_in_the_source_once_and_its_tests_exist():
    for _, weakness, name, fix, _, tests in FIXES:
        assert (ROOT / "src" / "openradial" / name).read_text().count(fix) == 1, weakness
        for test in tests.split():
            path, _, function = test.partition("::")
            assert f"def {function}" in (ROOT / path).read_text(), weakness
