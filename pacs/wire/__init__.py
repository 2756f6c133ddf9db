"""What is sent: groups and their bytes."""
