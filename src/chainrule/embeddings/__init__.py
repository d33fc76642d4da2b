"""Word vectors: learnt from text, kept, compared and exchanged."""
