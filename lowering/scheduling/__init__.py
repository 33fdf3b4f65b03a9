"""Schedules: named steps that change how a kernel runs and keep what it computes, bit for bit.

A step is a function of its name from a kernel to a kernel (split, reorder, vectorize, ...). It
refuses what dependences, or the order of the terms of a float accumulator, do not permit.
"""
