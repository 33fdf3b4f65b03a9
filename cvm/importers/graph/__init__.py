"""The graph of a model while it is imported, and the computations that several formats share."""
