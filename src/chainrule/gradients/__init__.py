"""Forward and backward equations written out by hand, in NumPy float64: what `neural/` is held to."""
