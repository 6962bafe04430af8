import os
from pathlib import Path

import pytest
import torch

from openradial.errors import OptionError
from openradial.files import read_tensors, writable, write_tensors, write_text


def test_text_replaces_text_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new folder" / "a.txt"
    write_text(path, "one\n")
    write_text(path, "zwei – ü\n")
    assert path.read_bytes() == "zwei – ü\n".encode()
    assert os.listdir(path.parent) == ["a.txt"]


def test_names_that_are_not_unicode_are_written_escaped(tmp_path):
    write_text(tmp_path / "a.json", '"\udcff"')
    assert (tmp_path / "a.json").read_bytes() == b'"\\udcff"'


def test_a_write_that_fails_leaves_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(self, target):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_tensors_come_back_with_their_header(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.arange(3).t()}, {"what": "numbers"})
    tensors, header = read_tensors(tmp_path / "a")
    assert torch.equal(tensors["x"], torch.arange(3))
    assert header == {"what": "numbers"}


def test_tensors_can_be_read_by_those_who_can_read_other_files(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.zeros(1)}, {})
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_path_that_can_be_written_is_returned_in_full_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert writable("a/b/model") == tmp_path / "a" / "b" / "model"
    assert os.listdir(tmp_path) == []


def test_a_read_only_folder_is_one_sentence(tmp_path, monkeypatch):
    def refuse(self, *arguments, **options):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(OptionError) as raised:
        writable(tmp_path / "model")
    assert str(raised.value) == f"{tmp_path / 'model'} cannot be written (Read-only file system); choose another path"


def test_a_device_or_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(OptionError, match="is a device or a pipe, and it would be replaced; choose another path"):
            writable(path)


def test_links_that_lead_to_themselves_are_no_output(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OptionError, match=r"cannot be written \(.*; choose another path$"):
        writable(tmp_path / "loop" / "model")


@pytest.mark.parametrize(("path", "reason"), [("/", "is the root"), ("~nobody-of-this-name/m", "cannot be written")])
def test_paths_that_are_no_output_are_refused(path, reason):
    with pytest.raises(OptionError, match=reason):
        writable(path)


def test_a_check_that_was_killed_leaves_nothing_behind_after_the_next(tmp_path, monkeypatch):
    def killed(path, missing_ok=False):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(SystemExit):
            writable(tmp_path / "model")
    monkeypatch.setattr(os, "getpid", lambda: 123)  # another process
    writable(tmp_path / "model")
    assert not list(tmp_path.iterdir())
