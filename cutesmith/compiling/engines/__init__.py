"""What a kernel asks of TMA, mbarriers and tensor cores, read from its PTX and its launch without executing it."""
