"""The steps of scripts, a file a topic; ``twin.generate`` puts them together."""
