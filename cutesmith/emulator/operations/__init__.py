"""Instructions that the machine executes: copies, barriers, tensor cores, shuffles."""
