"""Who executes the stages of a run: processes of this machine, a Ray cluster, or the caller alone."""
