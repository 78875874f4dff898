"""Experimental parts of `torch.fx` that programs name."""
