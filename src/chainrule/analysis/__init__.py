"""Statistics of models and texts, with the figures that show them; no module here needs a trained model."""
