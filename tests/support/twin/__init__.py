"""Two controllers play one script, and every answer and record is compared: parts of tests/twin."""
