"""n-gram models of any order, with every classic smoothing."""
