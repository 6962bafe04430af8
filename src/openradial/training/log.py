"""What a run tells on its way: one JSON line per epoch, and TensorBoard by choice."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openradial.errors import require
from openradial.files import write_text

LOG = "log.jsonl"
Record = dict[str, Any]


class Log:
    """The records of a run, in memory and in ``log.jsonl``; a run that goes on cuts off what its checkpoint forgot."""

    def __init__(self, folder: Path | None, *, tensorboard: bool = False) -> None:
        self.records: list[Record] = []
        self.path = None if folder is None else folder / LOG
        self.writer: Any = None
        if tensorboard and folder is not None:
            module = require("tensorboardX", "tensorboard", "a TensorBoard log")
            self.writer = module.SummaryWriter(str(folder / "tensorboard"))

    def start(self, kept: int) -> None:
        """Keep the first ``kept`` records of an earlier part of the run, and go on after them."""
        if self.path is None:
            return
        lines = self.path.read_text().splitlines()[:kept] if self.path.exists() and kept else []
        self.records = [json.loads(line) for line in lines]
        write_text(self.path, "".join(line + "\n" for line in lines))

    def add(self, record: Mapping[str, Any]) -> None:
        self.records.append(dict(record))
        if self.path is not None:
            with self.path.open("a") as out:
                out.write(json.dumps(record) + "\n")
        if self.writer is not None:
            for name, value in record.items():
                if isinstance(value, int | float) and name != "epoch":
                    self.writer.add_scalar(name, value, record["epoch"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
