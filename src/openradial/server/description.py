"""The page that describes the service, made of its OpenAPI description; it loads nothing from the web."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
code { font-size: 0.95em; } td, th { text-align: left; vertical-align: top; padding: 0.1rem 1rem 0.1rem 0; }
h2 { border-top: 1px solid; padding-top: 1rem; }
"""
EXAMPLE = """\
curl {url}/v1/predict -H 'Content-Type: image/png' --data-binary @photo.png
curl {url}/v1/predict -H 'Content-Type: application/json' -d '{{"inputs": [...]}}'"""


def page(api: Mapping[str, Any], url: str) -> str:
    """HTML of an OpenAPI description."""
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    parts = [f"<h1>{title}</h1>", f"<p>{escape(api['info'].get('description', ''))}</p>"]
    parts += [f"<pre><code>{escape(EXAMPLE.format(url=url.rstrip('/')))}</code></pre>"]
    parts += ["<p>All of it for programs: <a href='openapi.json'>openapi.json</a></p>"]
    parts += [line for path, methods in api["paths"].items() for line in _operations(path, methods)]
    parts += [
        line for name, model in api.get("components", {}).get("schemas", {}).items() for line in _model(name, model)
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{title}</title>"
    return (
        f"<!doctype html><html lang='en'><head>{head}<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _operations(path: str, methods: Mapping[str, Any]) -> Iterator[str]:
    for method, operation in methods.items():
        yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
        kinds = list(operation.get("requestBody", {}).get("content", {}))
        asked = [f"?{each['name']}=" for each in operation.get("parameters", ())]
        rows = [("Takes", ", ".join([*kinds, *asked]))] if kinds or asked else []
        rows += [(status, _answer(response)) for status, response in operation["responses"].items()]
        yield _table(rows)


def _answer(response: Mapping[str, Any]) -> str:
    content = response.get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    return f"{name}: {response['description']}" if name else str(response["description"])


def _model(name: str, model: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{escape(name)}</h2><p>{escape(model.get('description', ''))}</p>"
    yield _table([(key, _kind(value)) for key, value in model.get("properties", {}).items()])


def _kind(value: Mapping[str, Any]) -> str:
    kinds = [each.get("type", "") for each in value.get("anyOf", [value])]
    return ": ".join(filter(None, [" or ".join(filter(None, kinds)), value.get("description", "")]))


def _table(rows: list[tuple[str, str]]) -> str:
    lines = [f"<tr><th scope='row'><code>{escape(name)}</code></th><td>{escape(text)}</td></tr>" for name, text in rows]
    return f"<table>{''.join(lines)}</table>"
