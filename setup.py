"""Stores the digest of the compiler's files in what is built; all else of the build stands in
pyproject.toml.
"""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class BuildWithDigest(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            house = Path(self.build_lib) / "cvm"
            module = runpy.run_path(str(HERE / "jit" / "cache" / "compiler_digest.py"))
            (house / module["STORED"]).write_text(module["digest_of_files"](house))


setup(cmdclass={"build_py": BuildWithDigest})
