"""Packages that PyTorch comes with: here those that are installed, such as `packaging`."""
