"""Pure functions of tensors: no state, no I/O."""

from openradial.functional.losses import radial_loss
from openradial.functional.probabilities import (
    radial_distances,
    radial_log_probs,
    radial_nearest,
    radial_probs,
    safe_beta,
)

__all__ = ["radial_distances", "radial_log_probs", "radial_loss", "radial_nearest", "radial_probs", "safe_beta"]
