"""The window pattern: pooling, and convolutions of few channels, as direct kernels."""
