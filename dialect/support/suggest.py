"""Suggestions for misspelt words, by edit distance."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

MANY = 2000  # comparing with more words than this would take longer than it helps


def did_you_mean(word: str, known: Iterable[str], sigil: str = "") -> str:
    """The end of a message: "; did you mean relu", or nothing where no known word is close."""
    candidates = list(known)
    if len(word) > 80 or len(candidates) > MANY:
        return ""
    folded = {c.casefold(): c for c in reversed(candidates)}
    letters = sorted(word.casefold())
    close = [k for k in folded if sorted(k) == letters]
    close = close or get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    close = close or sorted(
        (k for k in folded if len(word) > 2 and word.casefold() in k.split("_")), key=len
    )
    return f"; did you mean {sigil}{folded[close[0]]}" if close else ""


def similar_file(path: str | Path) -> str:
    """The end of a message about a missing file: a file of its folder whose name is close."""
    wanted = Path(path)
    try:
        names = [p.name for p in wanted.parent.iterdir() if p.suffix == wanted.suffix]
    except (OSError, ValueError):
        return ""
    return did_you_mean(wanted.name, names)
