"""Suite packet-log: the cost of denied floods to permitted packets, logged or not."""
