"""Graphs with state: what a tick computes, and several ticks at once."""
