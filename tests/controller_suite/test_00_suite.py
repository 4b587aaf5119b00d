"""0. What the suite itself stands on."""

import pytest
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
