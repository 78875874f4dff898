"""The composites of `lucid.nn.functional`, one family per file; `lucid.nn.functional` shows them all."""
