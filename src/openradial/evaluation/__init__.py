"""Evaluate a bundle: predictions row by row, metrics on known and novel data, and an HTML report."""

from openradial.evaluation.evaluation import Evaluation, evaluate
from openradial.evaluation.html_report import write_report
from openradial.evaluation.rows import Row, rows_of
from openradial.evaluation.samples import Sample, known_sample, novel_sample
from openradial.evaluation.streaming import Run, predict_rows, records

__all__ = [
    "Evaluation",
    "Row",
    "Run",
    "Sample",
    "evaluate",
    "known_sample",
    "novel_sample",
    "predict_rows",
    "records",
    "rows_of",
    "write_report",
]
