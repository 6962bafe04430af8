"""``openradial data``: list, get, find and check data sets; check folders of images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.data import download as fetch
from openradial.data.catalog import ENTRIES, CatalogEntry, entry
from openradial.data.download import Source
from openradial.data.readers import folder as folders
from openradial.errors import FetchError, OptionError

app = typer.Typer(help="Data sets: list, get, find, check.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from: openradial data list")]
Root = Annotated[Path | None, typer.Option(help="A local folder with the files, which is used without a copy.")]


@app.command("list")
def list_sets() -> None:
    """List all data sets, and which of them are on this machine."""
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "kind", "classes", "train / test", "size (MB)", "here"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "size (MB)" else "left")
    for listed in ENTRIES.values():
        table.add_row(*_row(listed))
    Console().print(table)


@app.command()
def get(name: Name, root: Root = None) -> None:
    """Fetch a data set into the cache, and check it."""
    source = _source(name)
    folder = fetch.fetch(source, root=root)
    typer.echo(f"{source.name}: {_amount(folder, source)} in {folder}; licence: {source.licence}")


@app.command()
def path(name: Name) -> None:
    """Print the folder of a data set that is on this machine."""
    typer.echo(fetch.fetch(_source(name), download=False))


@app.command()
def check(name: Name, root: Root = None) -> None:
    """Read every file of a data set and compare its checksum."""
    source = _source(name)
    problems = fetch.check(source, root=root)
    if problems:
        more = f" ({len(problems) - 1} more files are wrong)" if len(problems) > 1 else ""
        way_out = f"run: openradial data get {source.name}" if root is None else "replace what is wrong there"
        raise FetchError(f"{problems[0]}{more}; {way_out}")
    folder = root or fetch.folder(source)
    typer.echo(f"{source.name}: {_amount(folder, source)} in {folder}, all checksums match")


@app.command()
def scan(
    root: Annotated[Path, typer.Argument(help="A folder of images: ROOT/class/*.jpg or *.png.")],
    validation: Annotated[Path | None, typer.Option(help="A second folder that must have the same classes.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Count broken images instead of failing.")] = False,
) -> None:
    """Decode every image of a folder and report what is wrong or unusual."""
    folder = folders.scan(root)
    if validation is not None:
        folders.compare_classes(folder, folders.scan(validation))
    for each in [folder] if validation is None else [folder, folders.scan(validation)]:
        typer.echo(each.check(skip_broken=skip_broken).report)


def _source(name: str) -> Source:
    source = entry(name.partition(":")[0]).source()
    if source is None:
        raise OptionError(f"{name} needs no files: load it with openradial.data.load({name!r})")
    return source


def _row(listed: CatalogEntry) -> list[str]:
    source = listed.source()
    facts = [listed.name, listed.kind, listed.classes, listed.examples]
    if source is None:
        return [*facts, "", "always"]
    return [*facts, f"{source.size / 1e6:.0f}", "yes" if _is_here(source) else ""]


def _is_here(source: Source) -> bool:
    try:
        fetch.fetch(source, download=False)
    except FetchError:
        return False
    return True


def _amount(folder: Path, source: Source) -> str:
    form = next(form for form in source.forms() if all(_file(folder, name).exists() for name in form))
    size = sum(_file(folder, name).stat().st_size for name in form)
    return f"{len(form)} file{'s'[: len(form) > 1]}, {size / 1e6:.1f} MB"


def _file(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).exists() else folder / f"{name}.gz"
