"""Tokenizers: text to token ids and back, based on the `tokenizers` library."""
