"""Communication hooks of `DistributedDataParallel`."""
