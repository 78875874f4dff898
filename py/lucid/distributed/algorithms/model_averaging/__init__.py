"""Parameters that processes train apart and average from time to time."""
