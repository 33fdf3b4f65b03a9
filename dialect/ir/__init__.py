"""The base of programs: types, sizes, attributes, literals, constants, source locations and diagnostics.

Nothing here knows an operator. Read `diagnostics` (locations and errors), `sizes`, `types`, `attributes`, `literals`.
"""
