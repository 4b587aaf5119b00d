"""0. What the suite itself stands on."""

import pytest
from controller_suite.client import IDLE_S
from controller_suite.security_kit import Secure


def test_sasl_is_left_out_only_while_there_is_none(ws, kind):
    """A kraftcore node refuses a listener with SASL; once it does not, the tests marked needs_sasl are due."""
    c = Secure(ws).format()
    try:
        if kind == "kafka":
            c.start()
        else:
            with pytest.raises(RuntimeError, match="CONTROLLER has SASL_PLAINTEXT: a node speaks PLAINTEXT and SSL"):
                c.start()
    finally:
        c.close()


def test_a_connection_that_lay_idle_is_made_anew(ctl):
    """The controller closes it after ten minutes; tests of other folders may take as long in between."""
    first = ctl.client()
    assert ctl.client() is first
    first.used -= 2 * IDLE_S
    assert ctl.client() is not first
