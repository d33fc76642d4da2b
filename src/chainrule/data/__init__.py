"""ids -> Batch."""
