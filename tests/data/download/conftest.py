import http.server
import threading
from functools import partial
from typing import ClassVar

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and no folder of the user's."""
    home = tmp_path / "cache"
    monkeypatch.setenv("OPENRADIAL_CACHE", str(home))
    monkeypatch.delenv("OPENRADIAL_DATA", raising=False)
    return home


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and cuts off what is asked for with ?cut."""

    requests: ClassVar[list[str]] = []

    def do_GET(self):
        self.requests.append(self.path)
        if self.path.endswith("?cut"):
            content = (self.server.folder / self.path[1:-4]).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2])
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture
def mirror(tmp_path):
    """A web server on this machine: its folder, its address, and what it was asked for."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    QuietHandler.requests = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))) as server:
        server.folder = folder
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        server.requests = QuietHandler.requests
        yield server
        server.shutdown()
        thread.join()
