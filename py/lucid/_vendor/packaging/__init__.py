"""The package `packaging`, where it is installed."""
