"""Layers: attention, Transformer blocks, output layers, dropout, positions, CRF."""
