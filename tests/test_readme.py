import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from benchmarks import from_scratch, pretrained

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text):
    """Each python block with the text block that follows it directly, or None."""
    blocks = list(FENCE.finditer(text))
    found = []
    for i, block in enumerate(blocks):
        if block[1] != "python":
            continue
        after = blocks[i + 1] if i + 1 < len(blocks) else None
        shown = after[2] if after and after[1] == "text" else None
        found.append((block[2], shown))
    return found


def run(code):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    return printed.getvalue()


def taken_apart(text):
    """The text without its numbers, and the numbers: training rounds differently on another processor."""
    number = r"-?\d+\.\d*"  # torch prints 1. where all numbers are whole
    return re.sub(number, "#", text).split(), [float(found) for found in re.findall(number, text)]


def test_the_readme_has_an_example():
    assert examples(README)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_features")
@pytest.mark.parametrize(("code", "shown"), examples(README))
def test_every_example_prints_what_the_readme_shows(code, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples write files
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = run(code)
    if shown is not None:
        words, numbers = taken_apart(printed)
        assert words == taken_apart(shown)[0]
        assert numbers == pytest.approx(taken_apart(shown)[1], abs=0.11)


def test_examples_are_paired_with_the_text_that_follows():
    text = "```python\nprint(1)\n```\nprints\n```text\n1\n```\n```sh\nls\n```\n```python\nx = 1\n```\n"
    assert examples(text) == [("print(1)\n", "1\n"), ("x = 1\n", None)]
    assert run("print(1)\n") == "1\n"


def test_the_results_are_those_of_the_file_that_the_benchmark_wrote():
    results = {
        name: json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        for name in ("pretrained", "from_scratch_mnist", "from_scratch_cifar10")
    }
    assert "\n".join(pretrained.summary(results["pretrained"])) in README
    rows = results["from_scratch_mnist"]["rows"] + results["from_scratch_cifar10"]["rows"]
    assert "\n".join(from_scratch.summary(rows)) in README
