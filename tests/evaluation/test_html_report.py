import base64
import io
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from evaluation_models import image_bundle, table_bundle
from PIL import Image

from openradial.data.sources import RawInput
from openradial.evaluation import Sample, evaluate, write_report
from openradial.evaluation.html_report import figures, render_report, thumbnail


def image_samples(n=40, unseen=20, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    pixels = np.zeros((n, 2, 2), np.uint8)
    for i, k in enumerate(labels):
        pixels[i, 0, k] = random.integers(120, 256)
    pixels[0, 0] = (0, 255)  # looks like the other class
    known = Sample(
        "<known & co>", [RawInput(f"k{i}", p) for i, p in enumerate(pixels)], labels, tuple("ab"[k] for k in labels)
    )
    noise = random.integers(0, 256, (unseen, 2, 2)).astype(np.uint8)
    rows = [RawInput(f"n{i}", p) for i, p in enumerate(noise)]
    return known, Sample("noise", rows, np.full(unseen, -1), ("noise",) * unseen)


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
    for value in (found.accuracy.value, found.false_rejects.measured, found.novel_metrics[0].detected):
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
    assert "Known and accepted, but misclassified (1)" in text


def test_rows_of_a_table_are_shown_as_rows(tmp_path):
    rows = [
        RawInput("t.csv:1", {"x": 0.0, "y": 0.9, "word": "<b>_c"}),
        RawInput("t.csv:2", {"x": 1.0, "y": 0.0, "word": "left"}),
        RawInput("t.csv:3", {"x": 0.0, "y": 0.9, "word": None}),
    ]
    found = evaluate(table_bundle(), Sample("t", rows, np.array([0, 0, 0]), ("a", "a", "a")), [])
    text = write_report(found, table_bundle(), tmp_path).read_text()
    assert (
        "<th>input</th><th>predicted</th><th>true class</th><th>p-value</th><th>x</th><th>y</th><th>word</th>" in text
    )
    assert "<td>t.csv:1</td><td>b</td><td>a</td><td>0.9</td><td>0.0</td><td>0.9</td><td>&lt;b&gt;_<wbr>c</td>" in text
    assert "<td>0.9</td><td></td>" in text  # a missing value
    assert ">nan<" not in text


def test_a_thumbnail_stands_upright(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", (60, 40), "red").save(tmp_path / "turned.jpg", exif=exif)
    path = str(tmp_path / "turned.jpg")
    url = thumbnail(RawInput(path, path), image_bundle().preprocessing)
    assert Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size == (40, 60)


def test_a_thumbnail_is_small_and_shows_few_grey_values():
    url = thumbnail(RawInput("x", np.array([[0, 16], [8, 0]], np.uint8)), image_bundle().preprocessing)
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    assert image.size == (96, 96)
    assert image.getpixel((90, 5)) == (255, 255, 255)
    assert thumbnail(RawInput("x", "no.png"), image_bundle().preprocessing) is None
    assert thumbnail(RawInput("x", {}), table_bundle().preprocessing) is None


def test_the_page_shows_rates_of_each_class_with_intervals_and_what_the_fit_found():
    bundle = image_bundle()
    found = evaluate(bundle, image_samples()[0], [])
    bundle.metadata["measured"] = {
        "accuracy": 0.9,
        "novel": None,
        "expected_detection": {"detected": 0.123, "auroc": 0.456},
        "baseline": {"name": "logistic regression", "accuracy": 0.876, "auroc": None},
        "weak": ["few <examples>"],
    }
    text = render_report(found, bundle)
    for each in found.per_class:
        interval = f"{100 * each.rejected_low:.1f}–{100 * each.rejected_high:.1f}"
        assert f"<td>{100 * each.rejected:.1f} % ({interval})</td>" in text
    assert "<b>Weak model:</b> few &lt;examples&gt;." in text
    assert "12.3 % of novel inputs are called unknown; AUROC 45.6 %" in text
    assert "logistic regression: accuracy 87.6 %. The model: 90.0 %." in text


def test_rates_of_each_class_are_in_the_json_values(page):
    rows = page[0].as_dict()["known"]["per_class"]
    assert [row["name"] for row in rows] == ["a", "b"]
    assert sum(row["examples"] for row in rows) == 40
    for row in rows:
        assert row["rejected_low"] <= row["rejected"] <= row["rejected_high"]
