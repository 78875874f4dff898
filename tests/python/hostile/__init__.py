"""What must hold whatever a program does: no crash, hang, leak or wrong value, no difference that is not listed."""
