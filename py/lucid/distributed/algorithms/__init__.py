"""Ways to send gradients."""
