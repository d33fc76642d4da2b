"""N-gram language models of any order with the classic smoothing methods."""
