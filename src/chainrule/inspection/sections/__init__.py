"""Sections of the inspection report, one module each."""
