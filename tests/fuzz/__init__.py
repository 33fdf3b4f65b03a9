"""Continuous attack: mutated inputs of every format, and random programs on every target.

`python -m tests.fuzz --hours 4` goes through all attacks in turn; `--attack text --seconds 60`
through one. A failing input is kept in `build/fuzz`, and the last line says how to run it again.
With `--coverage`, atheris (PyPI) guides the mutations by what they reach.
"""
