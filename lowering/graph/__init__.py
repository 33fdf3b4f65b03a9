"""Passes over operations: a function to a smaller one that gives the same results."""
