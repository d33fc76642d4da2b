"""Training loop, optimizers, schedules and checkpoints, independent of model families."""
