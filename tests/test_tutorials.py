"""The tutorials: all Python and shell blocks of a page run in order, in a temporary folder, and print what it shows.

Other processors round differently, so numbers with decimals may differ: by 0.05 below 1, otherwise by 5, which are
percentages. A line ``...`` stands for any lines, and ``...`` at the end of a line for the rest of it. A block with a
title is written to a file of that name. Blocks of the kind ``console`` are not run.
"""

import contextlib
import glob
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from openradial import cli, encoders
from openradial.errors import FetchError, MissingError

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(openradial [^|&<>;$]+?)(?: > (\S+))?")  # its output may go to a file
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?!\w)")
PROGRESS = re.compile(r"[a-z ]+: (\d[\d,]* of \d|\d+:\d\d)")  # lines of a run that takes more than two seconds
NEEDED = {"photographs": "efficientnet_lite0", "texts": "minilm"}  # encoders; the others are small, or need no weights


def blocks(text):
    """Each Python or shell block: kind or file name, code, and the text block that follows it directly, or None."""
    pairs = []
    for kind, title, code in FENCE.findall(text):
        name = re.search(r'title="(.+)"', title)
        pairs.append((name[1] if name else kind, code))
    shown = [code if kind == "text" else None for kind, code in pairs[1:]] + [None]
    return [(*block, after) for block, after in zip(pairs, shown, strict=True) if block[0] not in ("text", "console")]


def same_line(shown, printed):
    """Whether the words of two lines are equal, and their numbers close."""
    if shown.endswith("..."):
        shown = shown[:-3].rstrip()
        words = NUMBER.split(shown)
        printed = re.match("".join(re.escape(w) + NUMBER.pattern for w in words[:-1]) + re.escape(words[-1]), printed)
        if not printed:
            return False
        printed = printed[0]
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    return all(map(close, NUMBER.findall(shown), NUMBER.findall(printed)))


def close(shown, printed):
    if "." not in shown:
        return shown == printed
    one, other = (float(number.replace(",", "")) for number in (shown, printed))
    return abs(one - other) <= (0.05 if max(abs(one), abs(other)) <= 1 else 5)


def matches(shown, printed):
    """Whether the printed lines are those that a page shows."""
    shown, printed = (
        [line for line in text.splitlines() if line.strip() and not PROGRESS.match(line)] for text in (shown, printed)
    )
    at = 0
    for i, line in enumerate(shown):
        if line == "...":
            continue
        last = len(printed) if i and shown[i - 1] == "..." else at + 1
        fits = [k for k in range(at, min(last, len(printed))) if same_line(line, printed[k])]
        if not fits:
            return False
        at = fits[0] + 1
    return at == len(printed) or shown[-1] == "..."


class Session:
    """Runs blocks one after the other, as a reader does."""

    def __init__(self, monkeypatch, folder):
        self.names = {"__name__": "tutorial"}
        self.monkeypatch = monkeypatch
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        command = folder / "bin" / "openradial"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m openradial "$@"\n')
        command.chmod(0o755)
        monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)

    def run(self, kind, code):
        code = code.replace("8000", self.port)
        if kind == "python":
            with collected() as output:
                exec(compile(code, "tutorial", "exec"), self.names)
            return output.getvalue()
        if kind != "sh":
            Path(kind).write_text(code)
            return ""
        lines = code.replace("\\\n", " ").splitlines()
        return "".join(
            self.shell(list(part), ours) for ours, part in groupby(lines, lambda x: bool(COMMAND.fullmatch(x)))
        )

    def shell(self, lines, ours):
        """Run our own commands in this process, because importing torch takes seconds, and others with bash."""
        if ours:
            return "".join(map(self.command, lines))
        done = subprocess.run(["bash", "-e", "-c", "\n".join(lines)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, line):
        line, file = COMMAND.fullmatch(line).groups()
        words = [path for word in shlex.split(line, comments=True) for path in sorted(glob.glob(word)) or [word]]
        self.monkeypatch.setattr(sys, "argv", words)
        answers = io.StringIO()
        to_file = contextlib.nullcontext() if file is None else contextlib.redirect_stdout(answers)
        with collected() as output, to_file, pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, output.getvalue()
        if file is not None:
            Path(file).write_text(answers.getvalue())
        return output.getvalue()


@contextlib.contextmanager
def collected():
    """Collect the output and the messages in one text, as in a terminal."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield output


@pytest.fixture
def folder(tmp_path, monkeypatch, shared_features):
    """The working directory of a reader: a clone with examples, where Python also finds modules."""
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr("openradial.data.progress.FIRST", 3600.0)  # lines of progress depend on time
    yield folder
    for path in folder.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page, folder, monkeypatch):
    if page.stem in NEEDED:
        try:
            encoders.load(NEEDED[page.stem])
        except (FetchError, MissingError) as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"the encoder of {page.stem} cannot be had here: {error}")
    session = Session(monkeypatch, folder.parent)
    differences = []
    for kind, code, shown in blocks(page.read_text()):
        printed = session.run(kind, code)
        if not (shown is None or matches(shown, printed)):
            differences.append(f"{code}\nshown:\n{shown}\nprinted:\n{printed}")
    assert not differences, "\n".join(differences)


def test_there_is_a_tutorial_for_every_kind_of_data():
    assert [page.stem for page in PAGES] == ["photographs", "tables", "texts", "your-own-model"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_is_short(page):
    assert len(page.read_text().splitlines()) <= 180


def test_numbers_may_differ_a_little_and_words_not_at_all():
    assert matches("accuracy 93.1 % of 1,440\n", "accuracy  94.0 % of 1,440\n")
    assert not matches("accuracy 93.1 % of 1,440\n", "accuracy 94.0 % of 1,441\n")
    assert not matches("accuracy 93.1 %\n", "accuracy 80.0 %\n")
    assert not matches("AUROC 0.91\n", "AUROC 0.82\n")
    assert not matches("label cat\n", "label dog\n")
    assert matches("a 1\n...\nb 2.0, ...\n...\n", "a 1\nx\ny\nb 2.1, c 3\nz\n")
    assert not matches("a\nb\n", "a\nx\nb\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("a\n...\nb\n", "a\nc\n")


def test_blocks_are_paired_with_the_text_that_follows():
    page = "```python\nprint(1)\n```\nprints\n```text\n1\n```\n```console\n$ no\n```\n```sh\nls\n```\n"
    assert blocks(page) == [("python", "print(1)\n", "1\n"), ("sh", "ls\n", None)]
    assert blocks('```python title="a.py"\nx = 1\n```\n') == [("a.py", "x = 1\n", None)]
