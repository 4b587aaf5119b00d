"""Makes ``spark.read.format("kraft")`` work without a register call: Spark imports every module named ``pyspark_*``."""

from kraftcore.plugins.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
