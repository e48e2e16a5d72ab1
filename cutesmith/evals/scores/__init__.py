"""What a run's raw samples come to: fast_p, pass@k, speed-ups with intervals, costs, comparisons, a ranking."""
