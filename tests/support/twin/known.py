"""Where the sides may differ, with the reason. Everything else is a fault of ours."""

KNOWN = {}


def is_known(difference):
    """Whether a difference is one of those declared here."""
    return difference.sign in KNOWN
