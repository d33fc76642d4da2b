"""Measurements and figures of trained models: the sections of `chainrule inspect`."""
