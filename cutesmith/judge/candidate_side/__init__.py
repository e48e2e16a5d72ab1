"""The process of the candidate: it runs kernel_fn on what it is given, watched and confined."""
