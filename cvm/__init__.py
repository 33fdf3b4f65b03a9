from pathlib import Path as _Path

_here = _Path(__file__).parent
if not (_here / "dialect").is_dir():  # a checkout keeps the rooms beside this folder, a wheel inside it
    __path__.append(str(_here.parent))
