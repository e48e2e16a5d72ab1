"""Stages that judge a kernel file: lint, compilation, verification, benchmark, and the confined child they run in."""
