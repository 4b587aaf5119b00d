"""Metadata logs through Spark, and what they are measured against."""
