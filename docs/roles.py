"""Let the docstrings work in mkdocs: formulas become MathML, names become links, doctests become code.

Browsers draw MathML themselves, so the site needs no script and no font from the web.
"""

import re
from html import escape
from importlib import import_module
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

import openradial

PAGES = (*openradial.MODULES, "evaluation.plots")


def identifier(name: str) -> str:
    """Return the full name of what a docstring mentions, if the API pages have it."""
    for page in PAGES:
        if hasattr(import_module(f"openradial.{page}"), name.split(".")[0]):
            return f"openradial.{page}.{name}"
    return name


class Math(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        display = "block" if m[0].startswith("..") else "inline"
        tex = m[1].replace(r"\log ", r"\log\,")  # the converter sets no space after a function's name
        return self.md.htmlStash.store(convert(tex, display=display)), m.start(0), m.end(0)


class Reference(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: N802
        name = m[1].lstrip("~")
        link = Element("autoref", identifier=identifier(name), optional="")
        code = f"<code>{escape(name.split('.')[-1] if m[1].startswith('~') else name)}</code>"
        link.text = self.md.htmlStash.store(code)
        return link, m.start(0), m.end(0)


class Doctests(Preprocessor):
    """Put a fence around each run of lines from `>>>` to the next empty line."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        fenced = inside = False
        for line in [*lines, ""]:
            text = line.strip()
            fenced ^= text.startswith("```")
            if not inside and not fenced and text.startswith(">>> "):
                indent = line[: line.index(">")]
                out.append(f"{indent}```pycon")
                inside = True
            elif inside and not text:
                out.append(f"{indent}```")
                inside = False
            out.append(line)
        return out


class Roles(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        # Above 190, the priority of plain backticks.
        md.inlinePatterns.register(Math(r"\.\. math:: ([^\n]+)", md), "math_block", 201)
        md.inlinePatterns.register(Math(r":math:`([^`]+)`", md), "math_role", 200)
        md.inlinePatterns.register(Reference(r":(?:func|class|meth|mod|attr|exc|data):`([^`]+)`", md), "name_role", 199)
        # Before the fences are read, at 25.
        md.preprocessors.register(Doctests(md), "doctests", 28)


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(Roles())
    return config
