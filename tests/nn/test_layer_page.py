import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "layer.md").read_text()


def test_every_example_prints_what_the_page_shows():
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == PAGE.count("```python")
    variables: dict[str, object] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "layer.md", "exec"), variables)
        assert printed.getvalue() == shown
