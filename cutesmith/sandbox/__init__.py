"""A child process that is confined: limits, a private pipe, a kill that reaches every descendant."""
