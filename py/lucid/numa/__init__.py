"""Memory near a processor: names that launchers ask for."""
