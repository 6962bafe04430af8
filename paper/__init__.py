"""The paper's figures, tables and claims, each computed anew: what ``openradial reproduce`` runs."""

from paper.catalog import IDS, find
from paper.claims import CLAIMS, Claim
from paper.experiment import Experiment
from paper.plan import Plan
from paper.report import write_report
from paper.running import reproduce

__all__ = ["CLAIMS", "IDS", "Claim", "Experiment", "Plan", "find", "reproduce", "write_report"]
