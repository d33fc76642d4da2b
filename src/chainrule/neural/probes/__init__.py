"""Probes that record what a trained network computes: activations, attention weights, gradients."""
