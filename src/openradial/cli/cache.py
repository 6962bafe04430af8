"""``openradial cache``: show or clear the features that encoders computed."""

import typer

app = typer.Typer(help="Show or clear the features that encoders computed.", no_args_is_help=True)


@app.command()
def info() -> None:
    """Show how much the features of each encoder take, and the limit."""
    from openradial.encoders.cache import cached_files, features_folder, most_bytes

    sizes: dict[str, int] = {}
    for path, size, _ in cached_files():
        sizes[path.parent.name] = sizes.get(path.parent.name, 0) + size
    for name, size in sizes.items():
        typer.echo(f"{name}: {size / 2**20:.1f} MB")
    total, most = sum(sizes.values()) / 2**20, most_bytes() // 2**20
    typer.echo(f"{total:.1f} of {most:,} MB in {features_folder()}; OPENRADIAL_FEATURES sets the limit in MB")


@app.command()
def clear() -> None:
    """Remove the features of all encoders; they are computed again when they are needed."""
    from openradial.encoders.cache import cached_files, features_folder, trim

    size = sum(size for _, size, _ in cached_files())
    trim(0)
    typer.echo(f"{size / 2**20:.1f} MB removed from {features_folder()}")
