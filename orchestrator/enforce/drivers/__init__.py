"""One folder a data plane: its driver, its fake, and one contract suite for both."""
