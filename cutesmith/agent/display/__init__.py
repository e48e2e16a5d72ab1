"""What people see: the live screen and the report page of a session."""
