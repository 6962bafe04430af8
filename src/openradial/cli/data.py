"""``openradial data``: list, download and check data sets; check folders of images."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from openradial.errors import FetchError, OptionError

if TYPE_CHECKING:
    from openradial.data.download import Source

app = typer.Typer(help="List, download and check data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A name from: openradial data list")]
Root = Annotated[Path | None, typer.Option(help="Your own folder with the files, used in place of the cache.")]


@app.command("list")
def list_sets() -> None:
    """List all data sets, and whether they are on this machine."""
    from openradial.data.catalog import ENTRIES
    from openradial.data.download import fetch

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "kind", "classes", "train / test", "size (MB)", "here"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "size (MB)" else "left")
    for entry in ENTRIES.values():
        size, here, source = "", "always", entry.source()
        if source is not None:
            size, here = f"{source.size / 1e6:.0f}", "yes"
            try:
                fetch(source, download=False)
            except FetchError:
                here = ""
        table.add_row(entry.name, entry.kind, entry.classes, entry.examples, size, here)
    Console().print(table)


@app.command()
def get(name: Name, root: Root = None) -> None:
    """Download a data set into the cache, and verify it."""
    from openradial.data.download import fetch

    source = _source(name)
    folder = fetch(source, root=root)
    typer.echo(f"{source.name}: {_amount(folder, source)} in {folder}; licence: {source.licence}")


@app.command()
def path(name: Name) -> None:
    """Print the folder of a data set that is on this machine."""
    from openradial.data.download import fetch

    typer.echo(fetch(_source(name), download=False))


@app.command()
def check(name: Name, root: Root = None) -> None:
    """Read every file of a data set and compare its checksum."""
    from openradial.data import download

    source = _source(name)
    problems = download.check(source, root=root)
    if problems:
        more = f" ({len(problems) - 1} more files are wrong)" if len(problems) > 1 else ""
        way_out = f"run: openradial data get {source.name}" if root is None else "replace the wrong files"
        raise FetchError(f"{problems[0]}{more}; {way_out}")
    folder = root or download.folder(source)
    typer.echo(f"{source.name}: {_amount(folder, source)} in {folder}, all checksums match")


@app.command()
def scan(
    root: Annotated[Path, typer.Argument(help="A folder of images: ROOT/class/*.jpg or *.png.")],
    validation: Annotated[Path | None, typer.Option(help="A second folder that must have the same classes.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Count broken images instead of failing.")] = False,
) -> None:
    """Decode every image of a folder and report what is wrong or unusual."""
    from openradial.data.readers.folder import compare_classes
    from openradial.data.readers.folder import scan as scan_folder

    folders = [scan_folder(each) for each in (root, validation) if each is not None]
    if validation is not None:
        compare_classes(*folders)
    for folder in folders:
        typer.echo(folder.check(skip_broken=skip_broken).report)


def _source(name: str) -> "Source":
    from openradial.data.catalog import entry

    source = entry(name).source()
    if source is None:
        raise OptionError(f"{name} needs no files: load it with openradial.data.load({name!r})")
    return source


def _amount(folder: Path, source: "Source") -> str:
    def file(name: str) -> Path:
        return folder / name if (folder / name).exists() else folder / f"{name}.gz"

    form = next(form for form in source.forms() if all(file(name).exists() for name in form))
    size = sum(file(name).stat().st_size for name in form)
    return f"{len(form)} file{'s'[: len(form) > 1]}, {size / 1e6:.1f} MB"
