"""Tools around tensors and training: data loading, checkpointing, DLPack."""
