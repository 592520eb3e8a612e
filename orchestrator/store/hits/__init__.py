"""What rules decided: counts on their way in, sums, history, summaries."""
