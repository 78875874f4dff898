"""Tools around tensors and training: data loading, DLPack."""
