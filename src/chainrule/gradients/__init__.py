"""Forward and backward passes of the networks written out in NumPy float64, for teaching and as test references."""
