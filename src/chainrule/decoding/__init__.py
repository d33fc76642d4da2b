"""Decoding strategies: logit filters, sampling and beam search."""
