"""What a bundle says of data: predictions of rows as they come, numbers on known and novel data, and a report."""

from openradial.evaluation.measuring import Evaluation, evaluate
from openradial.evaluation.page import write_report
from openradial.evaluation.samples import Sample, known_sample, novel_sample
from openradial.evaluation.streaming import PredictedRows, predict_rows, records

__all__ = [
    "Evaluation",
    "PredictedRows",
    "Sample",
    "evaluate",
    "known_sample",
    "novel_sample",
    "predict_rows",
    "records",
    "write_report",
]
