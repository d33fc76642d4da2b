"""The microscope: what goes on inside a trained model, as words, pictures and numbers."""
