"""The neural families: one file each, beside its equations; torch inside, numpy at the border."""
