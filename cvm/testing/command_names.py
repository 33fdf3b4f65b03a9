"""The names of filetests' commands: their own, and those of levels, passes and pipelines."""

from cvm.jit.targets import all_stages
from cvm.lowering.pipeline import PIPELINES
from cvm.terminal.run_pipeline import all_passes

OWN = ("run", "check", "overflow", "fmt", "digest", "opt", "ranges", "graph")


def names() -> tuple[str, ...]:
    """The names known now: importing a package may add some."""
    return tuple(dict.fromkeys((*OWN, *all_stages(), *all_passes(), *PIPELINES)))
