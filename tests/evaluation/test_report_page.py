import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from evaluation_models import image_bundle, table_bundle

from openradial.data.sources import RawInput
from openradial.evaluation import Sample, evaluate, write_report
from openradial.evaluation import curves as drawing
from openradial.evaluation.pictures import figures, thumbnail
from openradial.metrics import risk_coverage_curve, roc_curve


def image_samples(n=40, strange=20, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    pixels = np.zeros((n, 2, 2), np.uint8)
    for i, k in enumerate(labels):
        pixels[i, 0, k] = random.integers(120, 256)
    pixels[0, 0] = (0, 255)  # looks like the other class
    known = Sample(
        "<known & co>", [RawInput(f"k{i}", p) for i, p in enumerate(pixels)], labels, tuple("ab"[k] for k in labels)
    )
    noise = random.integers(0, 256, (strange, 2, 2)).astype(np.uint8)
    rows = [RawInput(f"n{i}", p) for i, p in enumerate(noise)]
    return known, Sample("noise", rows, np.full(strange, -1), ("noise",) * strange)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    bundle = image_bundle()
    known, novel = image_samples()
    found = evaluate(bundle, known, [novel])
    path = write_report(found, bundle, tmp_path_factory.mktemp("report"), "A <title>")
    return found, path, path.read_text()


class Checker(HTMLParser):
    """Raises where tags are not closed in order; collects what a page loads."""

    empty = ("meta", "img", "br", "path", "use")

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.loads += [values[name] for name in ("src", "href", "xlink:href") if name in values]
        if tag not in self.empty:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        before = list(self.open)
        self.handle_starttag(tag, attributes)
        self.open = before

    def handle_endtag(self, tag):
        if tag not in self.empty:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(page):
    _, _, text = page
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert all(load.startswith(("data:image/png;base64,", "#")) for load in checker.loads)
    assert "http" not in re.sub(r'xmlns[:\w]*="[^"]*"', "", text)
    assert len(checker.ids) == len(set(checker.ids))


def test_every_reference_inside_the_page_finds_its_target(page):
    _, _, text = page
    ids = set(re.findall(r'id="([^"]+)"', text))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= ids
    assert set(re.findall(r'xlink:href="#([^"]+)"', text)) <= ids


def test_names_from_data_cannot_write_html(page):
    _, _, text = page
    assert "A &lt;title&gt;" in text
    assert "&lt;known &amp; co&gt;" in text
    assert "<title>A" in text
    assert "<known" not in text


def test_the_page_shows_the_numbers_of_the_evaluation(page):
    found, path, text = page
    for value in (found.accuracy.value, found.false_rejects.measured, found.numbers[0].detected):
        assert f"{100 * value:.1f} %" in text
    assert json.loads((path.parent / "report.json").read_text()) == json.loads(json.dumps(found.as_dict()))


def test_pictures_take_their_ink_from_the_page(page):
    found, _, _ = page
    drawn = figures(found)
    assert list(drawn) == ["scores", "rates", "roc", "oscr", "reliability", "risk"]
    for svg in drawn.values():
        ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
        assert "currentColor" in svg
        assert "#010203" not in svg
        assert "#ffffff" not in svg


def test_without_novel_data_there_are_no_curves_of_them(tmp_path):
    bundle = image_bundle()
    found = evaluate(bundle, image_samples()[0], [])
    assert list(figures(found)) == ["scores", "rates", "reliability", "risk"]
    text = write_report(found, bundle, tmp_path).read_text()
    assert "Novel inputs" not in text
    assert "Known, accepted, but taken for another class (1)" in text


def test_rows_of_a_table_are_shown_as_rows(tmp_path):
    rows = [
        RawInput("t.csv:1", {"x": 0.0, "y": 0.9, "word": "<b>"}),
        RawInput("t.csv:2", {"x": 1.0, "y": 0.0, "word": "left"}),
    ]
    found = evaluate(table_bundle(), Sample("t", rows, np.array([0, 0]), ("a", "a")), [])
    text = write_report(found, table_bundle(), tmp_path).read_text()
    assert "<th>input</th><th>said</th><th>is</th><th>p-value</th><th>x</th><th>y</th><th>word</th>" in text
    assert "<td>t.csv:1</td><td>b</td><td>a</td><td>0.9</td><td>0.0</td><td>0.9</td><td>&lt;b&gt;</td>" in text


def test_a_thumbnail_is_small_and_shows_few_grey_values():
    import base64
    import io

    from PIL import Image

    url = thumbnail(RawInput("x", np.array([[0, 16], [8, 0]], np.uint8)), image_bundle().preprocessing)
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert image.size == (96, 96)
    assert image.getpixel((90, 5)) == (255, 255, 255)
    assert thumbnail(RawInput("x", "no.png"), image_bundle().preprocessing) is None
    assert thumbnail(RawInput("x", {}), table_bundle().preprocessing) is None


def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_the_drawn_curves_are_the_given_ones():
    curve = roc_curve([0.1, 0.2, 0.4], [0.3, 0.9])
    line = drawing.plot_roc({"novel": curve}, axes()).lines[-1]
    assert (line.get_xdata() == 100 * curve.fpr).all()
    assert (line.get_ydata() == 100 * curve.tpr).all()
    risk = risk_coverage_curve([0.1, 0.2, 0.3], [True, False, True])
    line = drawing.plot_risk_coverage({"known": risk}, axes()).lines[0]
    assert (line.get_ydata() == 100 * risk.risk).all()


def test_a_long_curve_keeps_its_ends():
    random = np.random.default_rng(0)
    curve = roc_curve(random.normal(size=5000), random.normal(1, 1, size=5000))
    line = drawing.plot_roc({"novel": curve}, axes()).lines[-1]
    x, y = line.get_xdata(), line.get_ydata()
    assert len(x) <= drawing.POINTS
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 100, 100)


def test_histograms_are_shares_and_count_what_lies_beyond():
    known, novel = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, np.inf])
    ax = drawing.plot_scores(known, {"novel": novel}, 3.5, axes())
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["known", "novel", "threshold"]
    for patch in ax.patches:
        heights = patch.get_xy()[:, 1]
        assert heights.max() >= 25


def test_more_novel_sets_than_colours_are_drawn():
    curve = roc_curve([0.1], [0.3])
    assert len(drawing.plot_roc({str(i): curve for i in range(8)}, axes()).lines) == 9
