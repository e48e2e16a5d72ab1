"""The DSL's real host code on a machine without a GPU: launches are recorded, none is executed."""
