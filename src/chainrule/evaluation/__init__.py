"""How good a model is, on one scale."""
