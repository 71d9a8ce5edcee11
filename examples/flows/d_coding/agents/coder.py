"""A scripted coder: `coder.py 0` writes the first draft, `coder.py N` what it makes of the N-th failure.

Each call is written down in calls.log, as a real one would be paid for.
"""

import json
import sys
from pathlib import Path

MAIN = '\n\nif __name__ == "__main__":\n    print(slug(sys.argv[1]))\n'
DRAFTS = [
    "import sys\n\ndef slug(title: str) -> str:   \n\treturn title.lower().replace(' ', '-')\n" + MAIN,
    "import sys\n\n\ndef slug(title: str) -> str:\n    return title.lower().replace(' ', '-')\n" + MAIN,
    "import re\nimport sys\n\n\ndef slug(title: str) -> str:\n"
    "    return '-'.join(re.findall('[a-z0-9]+', title.lower()))\n" + MAIN,
]


def main() -> None:
    """Write a draft, and say what it cost."""
    number = int(sys.argv[1])
    with Path("../calls.log").open("a") as log:
        log.write(f"coder {number}\n")
    Path("slug.py").write_text(f"# draft {number}\n" + DRAFTS[min(number, len(DRAFTS) - 1)])
    said = {"result": "success", "message": f"wrote draft {number} of slug.py"}
    print(json.dumps({**said, "usage": {"input_tokens": 1500, "output_tokens": 400}}))


if __name__ == "__main__":
    main()
