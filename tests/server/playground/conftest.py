"""A server in a thread and a browser without a window, for the tests that drive the page."""

import os
import shutil
import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from openradial.server import Service, http_server
from openradial.server.playground import create_playground
from openradial.server.playground.digits import digit_model

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 600_000  # milliseconds; a busy machine may take its time


@pytest.fixture
def patience():
    return PATIENCE


@pytest.fixture(scope="module")
def served():
    """Serve an application on a socket for a while: a context that gives its address."""
    return serving


@contextmanager
def serving(app, opened):
    """The address of an application while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=3))
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    try:
        yield http_server.url_of(opened)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        without_browser("needs a browser: make browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        try:
            opened = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE)
        except playwright.Error as error:
            without_browser(f"{path} does not start: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


def without_browser(reason):
    """Skip the test; in CI, where make browser installs chromium, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def playground(served):
    """The address of a playground with the digits that come with it."""
    with http_server.listen("127.0.0.1", 0) as opened:
        app = create_playground(Service(digit_model("radial")), stopped=lambda: opened.fileno() < 0)
        with served(app, opened) as url:
            yield url


@pytest.fixture
def client(served):
    """A client of a playground of its own."""
    with http_server.listen("127.0.0.1", 0) as opened:
        app = create_playground(Service(digit_model("radial")), stopped=lambda: opened.fileno() < 0)
        with served(app, opened) as url, httpx.Client(base_url=url, timeout=PATIENCE / 1000) as made:
            yield made


@pytest.fixture
def visit(browser):
    """Open a page; at the end nothing may have gone wrong on it, and nothing may have left this computer."""
    contexts, trouble = [], []

    def open_page(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: said.type in ("error", "warning") and trouble.append(said.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda asked: _is_local(asked.url) or trouble.append(f"asked {asked.url}"))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def _is_local(url):
    return url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))
