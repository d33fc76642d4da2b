"""Measurements and figures of trained models."""
