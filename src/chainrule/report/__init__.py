"""HTML report of a comparison."""
