"""Tracing: Python functions of arrays to programs, and the functions that transform them."""
