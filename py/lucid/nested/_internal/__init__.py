"""Where PyTorch has its nested tensors of the jagged layout; packages import the class from here."""
