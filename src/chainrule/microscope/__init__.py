"""Inspection reports: findings, figures and JSON on the internals of trained models."""
