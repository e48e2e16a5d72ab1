"""How fast is it: interleaved rounds, stopwatch, baselines, the floor of the machine."""
