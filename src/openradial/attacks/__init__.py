"""Adversarial attacks through losses of a head: how much do small changes of inputs reduce the accuracy?

An attack increases a loss by moving inputs at most ``epsilon``, inside the range of valid inputs. A distance head that
is attacked through one loss alone can look more robust than it is, so there are several, and the worst of them.
"""

from openradial.attacks.evaluation import Attack, AttackCurve, Outcomes, accuracy_under_attack, outcomes, worst
from openradial.attacks.losses import LOSSES, HeadLoss, losses_for
from openradial.attacks.search import fgsm, pgd

__all__ = ["LOSSES", "Attack", "AttackCurve", "HeadLoss", "Outcomes", "accuracy_under_attack", "fgsm", "losses_for"]
__all__ += ["outcomes", "pgd", "worst"]
