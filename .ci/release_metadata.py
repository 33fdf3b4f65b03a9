"""Gives README.md absolute links and pyproject.toml its URLs, so that both read well on the page of
a package index.

python .ci/release_metadata.py https://github.com/OWNER/NAME TAG [FOLDER]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PICTURES = (".svg", ".png", ".gif")


def absolute(page: str, home: str, tag: str) -> str:
    """The page with links to files at the tag; pictures are linked as they are, not as pages about
    them.
    """

    def link(match: re.Match[str]) -> str:
        target = match[1]
        if "://" in target or target.startswith("#"):
            return match[0]
        kind = "raw" if target.endswith(PICTURES) else "blob"
        return f"]({home}/{kind}/{tag}/{target})"

    return re.sub(r"\]\(([^)\s]+)\)", link, page)


def with_urls(project: str, home: str) -> str:
    """The project file with its URLs."""
    urls = {
        "Homepage": home,
        "Documentation": f"{home}/tree/main/docs",
        "Source": home,
        "Issues": f"{home}/issues",
    }
    urls["Changelog"] = f"{home}/blob/main/CHANGELOG.md"
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    return project.replace("[project.scripts]", f"[project.urls]\n{table}\n[project.scripts]", 1)


if __name__ == "__main__":
    home, tag = sys.argv[1:3]
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else ".")
    for name, text in (
        ("README.md", absolute((folder / "README.md").read_text("utf-8"), home, tag)),
        ("pyproject.toml", with_urls((folder / "pyproject.toml").read_text("utf-8"), home)),
    ):
        (folder / name).write_text(text, "utf-8")
