"""Engines that map functions over partitions of a corpus: processes on one machine, or Spark."""
