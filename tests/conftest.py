"""Settings for all tests."""

from hypothesis import settings

# The same examples in every run; torch's first call of an operator takes longer than any sensible deadline.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
