"""Choose the columns of a table that become inputs."""

from dataclasses import replace
from typing import Any

from openradial.data.column_types import USED, infer_types, type_notes
from openradial.data.readers.columns import Column, Numbers, Words, number_column, word_column
from openradial.data.readers.tables import NUMBER, Table, select_columns
from openradial.data.sources import DataSource, indices
from openradial.data.splits import Split, divide
from openradial.errors import DataError, OptionError
from openradial.fitting.options import COLUMNS, FitOptions

MANY = 20  # numbers above which a label column may be a quantity


def reading_options(options: FitOptions) -> dict[str, Any]:
    """Return how a table is read, as arguments of :func:`openradial.data.sources.open`."""
    features = dict.fromkeys([*options.columns, *filter(None, [options.group])]) if options.columns else None
    # values of a column to drop may be anything, and as words no integer of a group is rounded
    words = (*options.categorical, *options.drop, *filter(None, [options.group]))
    sources = {"embeddings": options.embeddings, "group": options.group}
    return {"features": features and list(features), "words": words, **sources}


def choose_text(options: FitOptions, source: DataSource) -> DataSource:
    """Return a table as texts if its only column of a type that is used holds free text, and no option says more."""
    table, given = source.train, [options.group, *(getattr(options, name) for name in COLUMNS)]
    if not isinstance(table, Table):
        return source
    _check_label(source, table)  # texts have no other columns to choose
    is_closed = options.method == "auto" and options.choose_method("table") == "closed-form"
    types = infer_types(table.columns) if source.kind == "table" and is_closed and not any(given) else {}
    used = [name for name, kind in types.items() if kind in USED]
    if [types[name] for name in used] != ["free text"]:
        return source
    texts = replace(table, columns={name: table.columns[name] for name in used})
    return replace(source, kind="texts", train=texts, text=used[0], types=types)


def choose_columns(options: FitOptions, source: DataSource, split: Split) -> tuple[DataSource, list[str]]:
    """Return the source with the columns that become inputs and the types of all, and notes on those left out.

    Types follow from the rows of known classes. The column of groups stays; it has no type.
    """
    table, given = source.train, {name: getattr(options, name) for name in COLUMNS if getattr(options, name)}
    if not isinstance(table, Table):
        if given:
            raise OptionError(f"{next(iter(given))} names columns of a table, and {source.name} holds {source.kind}")
        return source, []
    _check_label(source, table)
    for names in given.values():
        select_columns(list(table.columns), None, names)  # raises for a name that does not exist
    wanted = [name for name in table.columns if name not in options.drop]
    if options.columns:
        wanted = [name for name in wanted if name in (*options.columns, options.group)]
    columns = {name: _as_type(options, name, table.columns[name]) for name in wanted if name != options.group}
    known = replace(table, columns=columns).select(divide(indices(table), split)[0].inputs).columns
    inferred = source.types or infer_types(known, options.numeric, options.categorical)
    types = {name: inferred[name] for name in known}
    notes = type_notes(known, types)
    kept, left = [name for name in wanted if types.get(name, "number") in USED], set(types.values())
    if options.choose_method(source.kind) == "gradient" and "free text" in left:
        notes.append("free text is left out: it is encoded in closed form alone, and a network is trained")
        left.remove("free text")
    if not left.intersection(USED):
        hint = ["if one of them holds texts, name it with text (--text)"] if "identifier" in types.values() else []
        raise DataError("; ".join(["no column is left to learn from", *notes, *hint]))
    for part in ("train", "test"):
        if isinstance(whole := getattr(source, part), Table):
            columns = {name: _as_type(options, name, whole.columns[name]) for name in kept}
            source = replace(source, **{part: replace(whole, columns=columns)})  # type: ignore[arg-type]
    return replace(source, types=types), notes


def _check_label(source: DataSource, table: Table) -> None:
    """Raise if the label column is a quantity: many different numbers, with fractions or nearly unique."""
    count, rows = len(table.classes), len(table)
    if count <= MANY or not all(map(NUMBER.fullmatch, table.classes)):
        return
    if 2 * count > rows or any(not float(name).is_integer() for name in table.classes):
        raise DataError(
            f"expected classes, got {count:,} different numbers in {rows:,} rows, which is a quantity; group it into a "
            "few classes, such as low, medium and high, or name another column with label (--label)",
            column=source.label,
        )


def _as_type(options: FitOptions, name: str, column: Column) -> Column:
    """Return a column as numbers or words where an option says so."""
    if name in options.numeric and isinstance(column, Words):
        return number_column(name, column.to_list())
    if name in options.categorical and isinstance(column, Numbers):
        return word_column(int(value) if value.is_integer() else value for value in column.to_list())
    return column
