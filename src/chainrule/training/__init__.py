"""Training loop, optimisers, schedules and checkpoints, independent of model families."""
