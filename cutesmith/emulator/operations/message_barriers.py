"""Message barriers."""
