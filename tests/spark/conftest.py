"""One Spark session for all tests; they are left out where pyspark is absent (tests/spark/run.sh has it)."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    """A session of two tasks at a time that repeats failed tasks."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = SparkSession.builder.master("local[2,4]").appName("tests").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", options).config("spark.io.compression.codec", "zstd")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "1g")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
