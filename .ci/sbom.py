"""The software bill of materials (CycloneDX 1.6, JSON) of the package: what pyproject.toml depends
on, as installed here.

    python .ci/sbom.py cvm.cdx.json

Equal environments give equal bytes: there is no time in it, and the serial number is made of the
contents.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def component(requirement: str, scope: str = "required") -> dict[str, Any]:
    """The entry of a requirement, such as `numpy>=2.0`."""
    name, allowed = re.fullmatch(r"([\w.-]+)(.*)", requirement).groups()
    found = metadata(name)
    licenses = (
        found.get("License-Expression") or (found.get("License") or "").split("\n")[0] or "unknown"
    )
    purl = f"pkg:pypi/{re.sub('[-_.]+', '-', name).lower()}@{found['Version']}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": found["Version"],
        "purl": purl,
        "scope": scope,
        "licenses": [{"license": {"name": licenses}}],
        "properties": [{"name": "cvm:requirement", "value": requirement if allowed else name}],
    }


def bill() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    parts = [component(d) for d in sorted(project["dependencies"])]
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    made = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [p["bom-ref"] for p in parts]}],
    }
    return {**made, "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made))}"}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=2) + "\n", "utf-8")
