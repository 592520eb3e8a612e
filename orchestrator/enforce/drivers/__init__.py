"""One folder a data plane, each with its driver, the fake beside it, and the same contract suite over both."""
