"""The scan pattern: cumulative sums, products, extremes and log-sum-exps along any dimension."""
