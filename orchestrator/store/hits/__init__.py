"""Counts of rules: reports, sums, history, summaries."""
