"""``pytest bench`` measures the installed package too."""

from bench.paths import measure_the_installed_package

measure_the_installed_package()
