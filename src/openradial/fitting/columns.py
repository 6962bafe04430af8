"""Choose the columns of a table that become inputs, and refuse a label column that is no class."""

from dataclasses import replace
from typing import Any

from openradial.data.column_types import USED, ColumnType, infer_types, type_notes
from openradial.data.readers.columns import Column, Numbers, Words, parse_words, word_column
from openradial.data.readers.tables import NUMBER, Table, select_columns
from openradial.data.sources import DataSource, indices
from openradial.data.splits import Split, divide
from openradial.errors import DataError, OptionError
from openradial.fitting.options import COLUMNS, FitOptions

MANY = 20  # numbers above which a label column may be a quantity


def reading_options(options: FitOptions) -> dict[str, Any]:
    """Return which columns of a table are read, as arguments of :func:`openradial.data.sources.open`."""
    group = () if options.group is None or options.group in options.columns else (options.group,)
    features = (*options.columns, *group) if options.columns else None
    return {"features": features, "drop": options.drop, "words": options.categorical}


def check_label(source: DataSource) -> None:
    """Raise if the label column of a table is a quantity: many different numbers, with fractions or nearly unique."""
    count, rows = len(source.classes), len(source.train)
    if not isinstance(source.train, Table) or count <= MANY or not all(map(NUMBER.fullmatch, source.classes)):
        return
    if 2 * count > rows or any(not float(name).is_integer() for name in source.classes):
        raise DataError(
            f"expected classes, got {count:,} different numbers in {rows:,} rows, which is a quantity; group it into a "
            "few classes, such as low, medium and high, or name another column with label (--label)",
            column=source.label,
        )


def choose_columns(
    options: FitOptions, source: DataSource, split: Split
) -> tuple[DataSource, dict[str, ColumnType], list[str]]:
    """Return the source with the columns that become inputs, the types of all columns, and notes on those left out.

    Types follow from the rows of known classes. The column of groups stays; it has no type.
    """
    table = source.train
    if not isinstance(table, Table):
        given = [name for name in COLUMNS if getattr(options, name)]
        if given:
            raise OptionError(f"{given[0]} names columns of a table, and {source.name} holds {source.kind}")
        return source, {}, []
    select_columns(table.columns, None, (*options.numeric, *options.categorical) or None)  # raises for unknown names
    columns = {name: _as_type(options, name, column) for name, column in table.columns.items() if name != options.group}
    known = replace(table, columns=columns).select(divide(indices(table), split)[0].inputs).columns
    types = dict(source.types or infer_types(known, options.numeric, options.categorical))
    kept = [name for name in table.columns if name == options.group or types[name] in USED]
    notes = type_notes(known, types)
    if not any(name in types for name in kept):
        raise DataError(f"no column is left to learn from: {'; '.join(notes)}")
    for name in ("train", "test"):
        part = getattr(source, name)
        if isinstance(part, Table):
            columns = {key: _as_type(options, key, part.columns[key]) for key in kept}
            source = replace(source, **{name: replace(part, columns=columns)})  # type: ignore[arg-type]
    return source, types, notes


def _as_type(options: FitOptions, name: str, column: Column) -> Column:
    """Return a column as numbers or words where an option says so."""
    if name in options.numeric and isinstance(column, Words):
        numbers = parse_words(column)
        if numbers is None:
            word = next(word for word in column.categories if parse_words(word_column([word])) is None)
            row = column.to_list().index(word) + 1
            raise DataError(f"expected a number, got {word!r}; correct it, or leave it empty", row=row, column=name)
        return numbers
    if name in options.categorical and isinstance(column, Numbers):
        return word_column(int(value) if value.is_integer() else value for value in column.to_list())
    return column
