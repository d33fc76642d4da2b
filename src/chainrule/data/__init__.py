"""Encoded texts, batches, and the input of training."""
