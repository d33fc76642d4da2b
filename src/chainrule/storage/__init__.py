"""Verified model directories, atomic replacement of files, manifests and temporary directories."""
