"""Programs: modules, functions and operations, their text, their construction and their
verification.

Read `module`, then `verify`, which types a program, `deferred_checks` for unknown sizes, `printer`
and `builder`.
"""
