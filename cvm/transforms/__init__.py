"""Compiled Python functions, and what is made of them: derivatives, stacks and loops."""
