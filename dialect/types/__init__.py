"""The base of programs: types, sizes, attributes, literals, constants, source locations and
diagnostics.

No operators. Read `diagnostics` (locations and errors), `sizes`, `types`, `attributes`,
`literals`.
"""
