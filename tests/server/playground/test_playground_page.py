"""The files of the page: small, whole, readable, and nothing from elsewhere."""

import re
from html.parser import HTMLParser

import pytest

from openradial.evaluation.plots import colors
from openradial.server.playground.app import STATIC
from openradial.server.playground.digits import MODELS

LARGEST = 500_000  # bytes of all that ships
PAGE = (STATIC / "index.html").read_text()
STYLE = (STATIC / "style.css").read_text()
SCRIPTS = {path.name: path.read_text() for path in STATIC.glob("*.js")}


class Elements(HTMLParser):
    """All elements of a page in their order, with their attributes and what they lie in."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], []
        self.feed(PAGE)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), tuple(self.open)))
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass


ELEMENTS = Elements().found
IDS = [attributes["id"] for _, attributes, _ in ELEMENTS if "id" in attributes]


def test_all_that_ships_is_small():
    files = [path for folder in (STATIC, MODELS) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_a_file_names_no_other_host(path):
    text = path.read_bytes().decode("latin-1").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text, re.IGNORECASE) == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_module_imports_what_is_there(name):
    for names, source in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', SCRIPTS[name]):
        for each in names.split(","):
            assert re.search(rf"export (async )?(function|const) {each.strip()}\b", SCRIPTS[source]), each


def test_no_two_elements_share_an_id():
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_asks_for_elements_that_are_there(name):
    wanted = re.findall(r'(?:find\("#|control\(")([a-z-]+)"', SCRIPTS[name])
    assert set(wanted) <= set(IDS)


def test_every_reference_to_another_element_finds_it():
    names = ("for", "aria-controls", "aria-labelledby", "aria-describedby")
    wanted = {attributes[name] for _, attributes, _ in ELEMENTS for name in names if name in attributes}
    assert wanted <= set(IDS)


def test_every_input_has_a_label():
    labelled = {attributes.get("for") for tag, attributes, _ in ELEMENTS if tag == "label"}
    for tag, attributes, above in ELEMENTS:
        if tag == "input":
            assert "label" in above or attributes["id"] in labelled, attributes


def test_every_canvas_has_a_role_and_a_text_in_its_place():
    for tag, attributes, above in ELEMENTS:
        if tag == "canvas":
            assert attributes["role"] in ("img", "application")
            assert "aria-label" in attributes or "figure" in above


def test_verdicts_are_told_to_those_who_do_not_see_them():
    live = [attributes["id"] for _, attributes, _ in ELEMENTS if attributes.get("aria-live") == "polite"]
    assert live == ["cross-said", "draw-said", "model-said"]


def test_files_are_of_a_size_that_one_can_read():
    assert all(text.count("\n") <= 400 for text in [PAGE, STYLE, *SCRIPTS.values()])


def palette(selector):
    block = re.search(rf"^{re.escape(selector)} {{(.*?)^}}", STYLE, re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block))


def luminance(colour):
    """Relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


THEMES = {"light": palette(":root"), "dark": palette(':root[data-theme="dark"]')}
TEXTS = [
    ("ink", "page"),
    ("ink", "card"),
    ("ink", "tint"),
    ("soft", "page"),
    ("soft", "card"),
    ("soft", "tint"),
    ("accent", "page"),
    ("accent", "card"),
    ("on-accent", "accent"),
    ("warn", "card"),
]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_text_stands_out_from_its_ground(theme, text, ground):
    assert contrast(THEMES[theme][text], THEMES[theme][ground]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_the_edges_of_controls_stand_out(theme):
    assert contrast(THEMES[theme]["field"], THEMES[theme]["card"]) >= 3


def test_the_arms_have_the_colours_of_our_figures():
    arms = [THEMES["light"][f"arm-{k}"].upper() for k in range(3)]
    assert arms == [colors.ORANGE, colors.BLUE, colors.GREEN]
