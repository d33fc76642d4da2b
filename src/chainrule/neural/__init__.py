"""Neural language models, encoders and probes, implemented in PyTorch."""
