"""Entry of ``python -m bench``."""

import sys

from bench.paths import measure_the_installed_package

measure_the_installed_package()

from bench.cli import main  # noqa: E402  (only now may anything import kraftcore)

if __name__ == "__main__":
    sys.exit(main())
