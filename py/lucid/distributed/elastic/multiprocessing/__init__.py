"""Errors of processes that a launcher started."""
