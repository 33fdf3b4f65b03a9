"""The specification of operators: the form of their definitions, promotion and broadcasting.

Read `op` first: an operator is one class with fields, constraints, types, reference, formula and
derivative.
"""
