"""Tracing: arrays that record the operations of a Python function."""
