"""0. What the suite itself stands on."""

from controller_suite.client import IDLE_S


def test_a_connection_that_lay_idle_is_made_anew(ctl):
    """The controller closes it after ten minutes; tests of other folders may take as long in between."""
    first = ctl.client()
    assert ctl.client() is first
    first.used -= 2 * IDLE_S
    assert ctl.client() is not first
