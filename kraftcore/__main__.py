"""``python -m kraftcore``: the ``kraftcore`` command, by the Python that it is to run in."""

import sys

from kraftcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
