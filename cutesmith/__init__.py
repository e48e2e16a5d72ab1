"""cutesmith: from a PyTorch function to a CuTe DSL kernel that is verified and timed honestly."""

__version__ = "0.1.0"
