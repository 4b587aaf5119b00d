"""Reads tables with the lines that it is given, in a Spark with Delta's own reader, and writes them as Parquet.

Standard input: the places to write to with the lines that set ``rows``, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.jars": ",".join(sys.argv[1:]),
    "spark.ui.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Small data on a cold JVM.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

builder = SparkSession.builder.master("local[2]")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
assert session.version.startswith("4.2."), session.version
for place, lines in json.load(sys.stdin).items():
    names: dict[str, object] = {}
    exec(lines, names)
    names["rows"].coalesce(1).write.parquet(place)  # type: ignore[attr-defined]
session.stop()
