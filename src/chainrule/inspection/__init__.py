"""What a model does, as pictures."""
