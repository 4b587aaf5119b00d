"""How hard property tests search, and never against a clock: a slow machine is no failure."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("quick", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
