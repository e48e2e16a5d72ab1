"""What people see while a session runs: its live screen."""
