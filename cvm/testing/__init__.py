"""Golden-file tests of programs and of their lowered text: `.cvm` files with expectations in
comments.

`pytest_plugin` collects them in any project's tests, `cvm test` runs them without pytest. In: a
file with a line `// test COMMAND`. Out: nothing, a failure that says where, or new golden lines
(docs/testing.md).
"""
