"""Learning by gradients: the loop and its parts. Knows modules and batches, no family."""
