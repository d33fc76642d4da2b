"""Evaluation metrics: perplexity, classification, tagging, translation, word error rate, word vectors."""
