"""Recurrent layers: all steps of one in a launch, the weights in registers."""
