"""Evaluate a classifier: metrics on known and novel data, and an HTML report."""

from openradial.evaluation import plots
from openradial.evaluation.evaluation import Evaluation, Sample, evaluate, known_sample, novel_sample
from openradial.evaluation.html_report import write_report

__all__ = ["Evaluation", "Sample", "evaluate", "known_sample", "novel_sample", "plots", "write_report"]
