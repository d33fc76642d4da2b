"""Spelling correction by a noisy channel."""
