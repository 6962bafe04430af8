"""The paper's figures, tables and claims, computed with the public API of openradial: ``python -m paper``."""

from paper.claims import CLAIMS, Claim
from paper.experiment import IDS, Experiment, find
from paper.plan import Plan
from paper.report import write_report
from paper.runner import reproduce

__all__ = ["CLAIMS", "IDS", "Claim", "Experiment", "Plan", "find", "reproduce", "write_report"]
