import pytest

from openradial.errors import OptionError
from openradial.server import Limits


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(OptionError, match=r"^batch must be a whole number of at least 1, got 0$"):
        Limits(batch=0)
    with pytest.raises(OptionError, match=r"^read_timeout must be a finite number above 0, got 0$"):
        Limits(read_timeout=0)
    with pytest.raises(OptionError, match=r"^delay must be a number of milliseconds, at least 0, got -1$"):
        Limits(delay=-1)
    sentence = r"^memory must hold one request, got memory=8, body=9; raise memory or lower body$"
    with pytest.raises(OptionError, match=sentence):
        Limits(body=9, memory=8)
    sentence = r"^queue must hold one request, got queue=10, items=20; raise queue or lower items$"
    with pytest.raises(OptionError, match=sentence):
        Limits(items=20, queue=10)
