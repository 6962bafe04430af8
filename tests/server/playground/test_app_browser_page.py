"""The size of the page, and files that are no image."""

import io

import httpx
import numpy as np
from PIL import Image

from openradial.server.playground.digits import digit_model


def test_the_whole_page_is_less_than_500_kilobytes(browser, playground, patience):
    context = browser.new_context()
    context.set_default_timeout(patience)
    page = context.new_page()
    answers = []
    page.on("response", lambda answer: "/static/" in answer.url and answers.append(answer))
    page.goto(f"{playground}/#/draw")
    page.wait_for_selector("#known button")
    sizes = {answer.url: len(answer.body()) for answer in answers}
    context.close()
    assert len(sizes) >= 10
    assert sum(sizes.values()) < 200_000  # the classifiers, which stay on the server, have the rest


def png(value):
    stream = io.BytesIO()
    Image.fromarray(np.full((28, 28), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def test_a_file_that_is_no_image_says_so(browser, playground, patience):
    context = browser.new_context()
    context.set_default_timeout(patience)
    page = context.new_page()
    page.goto(f"{playground}/#/model")
    page.wait_for_selector("#drop:not([hidden])")
    page.set_input_files("#files", [{"name": "odd.png", "mimeType": "image/png", "buffer": b"no image"}])
    page.wait_for_selector(".answers [data-error]")
    assert page.inner_text(".answers .verdict") == "Not read"
    context.close()


def test_the_classifier_of_the_page_is_that_of_the_service(playground, patience):
    bundle = digit_model("radial")
    options = {"headers": {"Content-Type": "image/png"}, "timeout": patience / 1000}
    found = httpx.post(f"{playground}/v1/predict", content=png(90), **options).json()
    assert found["predictions"][0]["nearest"] == bundle.predict([png(90)])[0].nearest
