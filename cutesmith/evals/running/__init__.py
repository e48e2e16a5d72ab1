"""A run over a suite: its folder, its results and cache, and the pipeline of stages that engines execute."""
