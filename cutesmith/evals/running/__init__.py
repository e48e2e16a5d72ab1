"""A run over a suite: its folder, its results and cache, the pipeline of stages, and the engines that execute them."""
