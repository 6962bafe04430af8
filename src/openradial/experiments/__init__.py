"""The paper's figures, tables and claims, each computed anew: what ``openradial reproduce`` runs."""

from openradial.experiments.catalog import IDS, find
from openradial.experiments.claims import CLAIMS, Claim
from openradial.experiments.experiment import Experiment
from openradial.experiments.plan import Plan
from openradial.experiments.report import write_report
from openradial.experiments.running import reproduce

__all__ = ["CLAIMS", "IDS", "Claim", "Experiment", "Plan", "find", "reproduce", "write_report"]
