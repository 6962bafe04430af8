"""The page in a browser: each tab does its work, by mouse and by keyboard alone."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from openradial.classifier import OpenClassifier
from openradial.conformal import Rejector
from openradial.data.inputs import TableInputs
from openradial.data.table_encoder import NumberFeature, TableEncoder, WordFeature
from openradial.functional import radial_probs
from openradial.heads import RadialHead
from openradial.models import build
from openradial.server import Service, http_server
from openradial.server.playground import create_playground, runs
from openradial.server.playground.app import STATIC

ENDED = "#spiral[data-state=ended]"
TABS = ("spiral", "draw", "model")


def numbers(page, head):
    """The probabilities that the page shows at the cross: three arms and none."""
    texts = page.locator(f"#spiral [data-head={head}] .number").all_inner_texts()
    return [float(re.sub(r"[^0-9.]", "", text)) / 100 for text in texts]


def wait_for_numbers(page):
    page.wait_for_function("() => document.querySelectorAll('#spiral .number:not(:empty)').length === 8")


def slide(page, selector, value):
    """Move a slider as a hand does: many inputs may come, and one change at the end."""
    page.locator(selector).evaluate(
        """(slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            slider.dispatchEvent(new Event("change", { bubbles: true }));
        }""",
        value,
    )


def test_far_away_softmax_is_sure_and_radial_says_no_class(visit, playground):
    page = visit(f"{playground}/#/spiral")
    page.wait_for_selector(ENDED)
    page.wait_for_function("() => document.querySelector('#progress-value').textContent === 'step 792 of 792'")
    page.wait_for_function(
        "() => /The radial layer says no class/.test(document.querySelector('#cross-said').textContent)"
    )
    softmax, radial = numbers(page, "softmax"), numbers(page, "radial")
    assert max(softmax[:3]) > 0.9
    assert softmax[3] == 0
    assert radial[3] > 0.5


@pytest.fixture
def slow_frames(monkeypatch):
    """Leave time to press pause before a run has ended."""
    monkeypatch.setattr(runs, "REST", 0.3)


@pytest.mark.usefixtures("slow_frames")
def test_beta_and_cut_off_act_at_once_and_nothing_is_learned_anew(visit, playground):
    page = visit(f"{playground}/#/spiral")
    page.wait_for_function("() => Number(document.querySelector('#progress').value) >= 3")
    page.click("#go")
    page.wait_for_selector("#spiral[data-state=paused]")
    page.locator("#spiral [data-head=radial] .map").click(position={"x": 225, "y": 190})
    started = []
    page.on("request", lambda asked: asked.method == "POST" and started.append(asked.url))
    slide(page, "#beta", 0)
    wide = sum(numbers(page, "radial")[:3])
    slide(page, "#beta", 100)
    narrow = sum(numbers(page, "radial")[:3])
    assert narrow < wide
    slide(page, "#beta", 0)
    slide(page, "#cutoff", 5)
    assert page.inner_text("#cutoff-value") == "0.071, balls apart"
    assert sum(value > 0 for value in numbers(page, "radial")[:3]) <= 1
    assert started == []


@pytest.mark.usefixtures("slow_frames")
def test_a_run_can_be_paused_and_scrubbed_back(visit, playground):
    page = visit(f"{playground}/#/spiral")
    page.wait_for_function("() => Number(document.querySelector('#progress').value) >= 3")
    page.click("#go")
    page.wait_for_selector("#spiral[data-state=paused]")
    assert page.inner_text("#go") == "Continue"
    slide(page, "#progress", 1)
    assert page.inner_text("#progress-value") == "step 8 of 792"
    page.click("#go")
    page.wait_for_function("() => Number(document.querySelector('#progress').value) >= 6")


def test_label_noise_starts_both_networks_again(visit, playground):
    page = visit(f"{playground}/#/spiral")
    wait_for_numbers(page)
    with page.expect_request(lambda asked: asked.method == "POST" and asked.url.endswith("/play/spiral")) as asked:
        slide(page, "#noise", 30)
    assert asked.value.post_data_json["label_noise"] == 0.3
    assert page.inner_text("#noise-value") == "30\u00a0%"


def test_bayesian_mode_shows_how_far_the_networks_agree(visit, playground):
    page = visit(f"{playground}/#/spiral")
    wait_for_numbers(page)
    page.check("#bayesian")
    page.wait_for_function(
        "() => /200 networks drawn/.test(document.querySelector('#spiral [data-head=radial] figcaption').textContent)"
    )
    label = page.get_attribute("#spiral [data-head=radial] .histogram", "aria-label")
    assert label.startswith("Distribution of the winning probability of radial. 200 networks drawn: half of them")


@pytest.mark.usefixtures("slow_frames")
def test_what_was_asked_of_a_run_that_is_left_is_no_error(visit, playground):
    page = visit(f"{playground}/#/spiral")
    wait_for_numbers(page)
    page.click("#go")
    page.wait_for_selector("#spiral[data-state=paused]")
    page.focus("#spiral [data-head=radial] .map")
    page.evaluate(
        """() => {  // hold the requests of a place until they are released
            const usual = window.fetch, released = new Promise((resolve) => { window.release = resolve; });
            window.fetch = async (url, ...rest) => {
                if (String(url).includes("/at?")) { window.held = true; await released; }
                return usual(url, ...rest);
            };
        }"""
    )
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => window.held")
    with page.expect_response(lambda answer: answer.request.method == "DELETE"):
        page.click("#again")
    page.evaluate("() => window.release()")
    page.wait_for_function("() => Number(document.querySelector('#progress').value) >= 3")


def test_the_page_computes_probabilities_as_the_library_does(visit, playground):
    page = visit(f"{playground}/#/draw")
    o = np.random.default_rng(0).normal(0, 2, (50, 3)).astype(np.float16)
    code = """async ([codes, rows, settings]) => {
        const { atPlace, halves } = await import("/static/heads.js");
        const one = (head, row) => atPlace(head, [row], settings).mean;
        const read = [...halves(Uint16Array.from(codes).buffer)];
        return [read, rows.map((row) => one("softmax", row)), rows.map((row) => one("radial", row))];
    }"""
    settings = {"beta": 1.7, "scale": 2.0, "cutoff": 3.0}
    read, softmax, radial = page.evaluate(code, [o.view(np.uint16).flatten().tolist(), o.tolist(), settings])
    outputs = torch.from_numpy(o.astype(np.float64))
    np.testing.assert_array_equal(np.array(read, np.float32), o.astype(np.float32).flatten())
    np.testing.assert_allclose(softmax, outputs.softmax(-1), rtol=1e-9)
    np.testing.assert_allclose(radial, radial_probs(outputs, **settings), rtol=1e-9)


def said_of(page, head):
    page.wait_for_function(f"() => document.querySelector('#draw [data-head={head}] .verdict').textContent !== '–'")
    return page.inner_text(f"#draw [data-head={head}] .verdict")


def test_a_drawn_one_is_a_one_and_a_clean_sheet_is_nothing(visit, playground):
    page = visit(f"{playground}/#/draw")
    box = page.locator("#sheet").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"]
    page.mouse.move(x + 12, y + 40)
    page.mouse.down()
    page.mouse.move(x - 12, y + 220, steps=8)
    page.mouse.up()
    page.wait_for_function("() => /Radial: a 1/.test(document.querySelector('#draw-said').textContent)")
    assert said_of(page, "radial") == "It is a 1"
    assert page.locator("#draw [data-head=radial] dt").all_inner_texts() == [
        "Probability of 1",
        "Distance to 1",
        "p-value",
    ]
    page.click("#clear")
    page.wait_for_function("() => document.querySelector('#draw [data-head=radial] .verdict').textContent === '–'")


def wait_for_seven(page):
    page.wait_for_function(
        "() => document.querySelector('#draw [data-head=radial] .verdict').textContent === 'It is a 7'"
    )


def sent_drawings(page):
    """Collect the pixels of every drawing that the page sends."""
    sent = []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.post_data_buffer))
    return sent


def press_pen(page):
    box = page.locator("#sheet").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()


def test_a_press_of_the_pen_is_ink_and_no_empty_sheet_is_sent(visit, playground):
    page = visit(f"{playground}/#/draw")
    sent = sent_drawings(page)
    with page.expect_response("**/play/digits?ready=false") as answer:
        press_pen(page)
    assert answer.value.ok
    page.mouse.up()
    page.click("#clear")
    page.click("#undo")
    page.get_by_role("button", name="digit 7").click()
    wait_for_seven(page)
    assert len(sent) == 2  # the dot and the seven
    assert all(any(pixels) for pixels in sent)


def test_a_browser_that_draws_nothing_sends_nothing(visit, playground):
    page = visit(f"{playground}/#/draw")
    page.get_by_role("button", name="digit 7").wait_for()
    page.evaluate("() => Object.assign(CanvasRenderingContext2D.prototype, { stroke() {}, fill() {} })")
    sent = sent_drawings(page)
    press_pen(page)
    page.mouse.move(0, 0)
    page.mouse.up()
    page.get_by_role("button", name="digit 7").click()
    wait_for_seven(page)
    assert len(sent) == 1  # the seven


def test_a_smiley_is_unknown_and_the_rate_changes_that_at_once(visit, playground):
    page = visit(f"{playground}/#/draw")
    page.get_by_role("button", name="smiley").click()
    assert said_of(page, "radial") == "Unknown"
    page.get_by_role("button", name="digit 7").click()
    wait_for_seven(page)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    slide(page, "#draw-rate", 100)
    p_value = float(page.locator("#draw [data-head=radial] dd").last.inner_text())
    assert (said_of(page, "radial") == "Unknown") == (p_value <= 0.5)
    assert asked == []


@pytest.fixture
def picture(tmp_path):
    strip = Image.open(STATIC / "gallery.png")

    def write(place):
        path = tmp_path / f"picture-{place}.png"
        strip.crop((28 * place, 0, 28 * place + 28, 28)).save(path)
        return path

    return write


def test_chosen_images_get_a_class_or_unknown(visit, playground, picture):
    page = visit(f"{playground}/#/model")
    page.wait_for_selector("#drop:not([hidden])")
    page.set_input_files("#files", [picture(4), picture(15)])
    page.wait_for_function("() => /^Of 2, 1 are unknown/.test(document.querySelector('#model-said').textContent)")
    found = dict(
        zip(
            page.locator(".answers .what").all_inner_texts(),
            page.locator(".answers .verdict").all_inner_texts(),
            strict=True,
        )
    )
    assert found == {"picture-4.png": "4", "picture-15.png": "Unknown"}
    slide(page, "#model-rate", 0)
    slide(page, "#model-rate", 100)
    p_values = [
        float(re.search(r"p-value [<]? ?([0-9.]+)", text)[1])
        for text in page.locator(".answers .small").all_inner_texts()
    ]
    unknown = page.locator(".answers [data-unknown]").count()
    assert unknown == sum(value <= 0.5 for value in p_values)


def test_dropped_images_are_read(visit, playground, picture):
    page = visit(f"{playground}/#/model")
    page.wait_for_selector("#drop:not([hidden])")
    page.evaluate(
        """(bytes) => {
            const dropped = new DataTransfer();
            dropped.items.add(new File([Uint8Array.from(bytes)], "seven.png", { type: "image/png" }));
            const event = new DragEvent("drop", { dataTransfer: dropped, bubbles: true });
            document.querySelector("#drop").dispatchEvent(event);
        }""",
        list(picture(7).read_bytes()),
    )
    page.wait_for_function("() => document.querySelector('#model-said').textContent.startsWith('seven.png')")
    assert page.locator(".answers .what").all_inner_texts() == ["seven.png"]
    assert page.locator(".answers .verdict").all_inner_texts() == ["7"]
    assert page.locator("#model-said").text_content() == "seven.png: 7."


@pytest.fixture
def table_playground(served):
    """The address of a playground with a model of a table: two numbers are the outputs, a word counts for nothing."""
    features = (NumberFeature("length", 1.0, 0.0, 1.0), NumberFeature("width", 0.0, 0.0, 1.0))
    words = WordFeature("colour", ("red", "blue"), (0.5, 0.5))
    net = build("mlp", 2, inputs=4, hidden=())
    with torch.no_grad():
        net.classifier.weight.copy_(torch.eye(2, 4))
        net.classifier.bias.zero_()
    rejector = Rejector(0.1).fit(torch.linspace(0, 1, 99))
    classifier = OpenClassifier(net, RadialHead(2), rejector=rejector)
    inputs = TableInputs(TableEncoder((*features, words), ("long", "wide")))
    bundle = classifier.replace(
        network=("mlp", {"inputs": 4, "hidden": ()}), classes=("long", "wide"), preprocessing=inputs
    )
    with http_server.listen("127.0.0.1", 0) as opened:
        app = create_playground(Service(bundle), title="my model", stopped=lambda: opened.fileno() < 0)
        with served(app, opened) as url:
            yield url


def test_a_row_of_a_table_is_asked_about_by_a_form(visit, table_playground):
    page = visit(f"{table_playground}/#/model")
    page.wait_for_selector("#row:not([hidden])")
    assert page.inner_text("#model-lead").startswith("my model: 2 known classes (long, wide), mlp with 10 parameters")
    page.locator("#row select").select_option("blue")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_function("() => document.querySelector('#model-said').textContent === '1, 0, blue: long.'")
    page.get_by_label("length").fill("9")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#model-said').textContent === '9, 0, blue: Unknown.'")
    assert page.locator(".answers .verdict").first.bounding_box()["height"] < 60  # one line
    assert page.evaluate(NAMELESS) == []


def test_the_keyboard_alone_is_enough(visit, playground):
    page = visit(f"{playground}/#/spiral")
    wait_for_numbers(page)
    page.focus("#tab-spiral")
    page.keyboard.press("ArrowRight")
    assert page.locator("#draw").is_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")  # the switch of colours
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "map"
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector('#cross-said').textContent.startsWith('At -0.1, 0.5:')")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "go"
    page.focus("#tab-spiral")
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="digit 4").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => /Digit 4. .*Radial: a 4/.test(document.querySelector('#draw-said').textContent)")


NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, canvas, a")]
    .filter((each) => each.checkVisibility())
    .filter((each) => !(each.ariaLabel || each.labels?.length || each.textContent.trim()))
    .filter((each) => !each.closest("button")?.ariaLabel)
    .map((each) => each.outerHTML)"""


SMALL = """() => [...document.querySelectorAll("button")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().height < 24).length"""


OVERFLOWING = """() => [...document.querySelectorAll(".card, fieldset")]
    .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth)
    .map((each) => each.textContent)"""


@pytest.mark.parametrize("tab", TABS)
def test_every_control_has_a_name_and_a_phone_needs_no_scrolling_sideways(visit, playground, tab):
    page = visit(f"{playground}/#/{tab}", viewport={"width": 360, "height": 740}, has_touch=True)
    page.wait_for_load_state("load")
    page.wait_for_selector({"spiral": "#spiral li[data-wins]", "draw": "#known button", "model": "#drop p"}[tab])
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(SMALL) == 0
    assert page.evaluate(OVERFLOWING) == []


def test_colours_follow_the_system_and_the_switch(visit, playground):
    page = visit(f"{playground}/#/draw", color_scheme="dark")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    page.reload()
    assert page.get_attribute("html", "data-theme") == "light"
