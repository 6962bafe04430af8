"""Decisions: from scores to a class or "unknown"."""

from openradial.decision.conformal import conformal_p_values

__all__ = ["conformal_p_values"]
