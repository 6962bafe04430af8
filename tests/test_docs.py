import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]  # --quiet hides warnings
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return {page.relative_to(folder).as_posix(): page.read_text() for page in folder.rglob("*.html")}


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_web(site):
    for name, page in site.items():
        loads = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="?(?:https?:)?//[^" >]+', page)
        loads += re.findall(r'<link[^>]*\shref="?(?:https?:)?//[^" >]+', page)
        assert loads == [], name


@pytest.mark.slow
def test_docstrings_are_rendered_whole(site):
    page = site["api.html"]
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in page
    assert re.findall(r":(?:math|func|class|mod|meth):", page) == []
    assert re.search(r'href="#openradial\.functional\.safe_beta"><code>safe_beta</code>', page)
    assert "<blockquote>" not in page  # what `>>>` becomes when it is not seen as code


def test_the_quick_start_prints_what_it_says(capsys):
    text = (ROOT / "docs" / "index.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == output
