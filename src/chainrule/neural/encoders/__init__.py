"""Encoders and task networks: sequence-to-sequence, tagger, classifier, pretraining."""
