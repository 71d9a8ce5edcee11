"""Gate 2: it compiles, and every function says what it takes and returns."""

import ast
import sys
from pathlib import Path

found = []
for file in sys.argv[1:]:
    tree = ast.parse(Path(file).read_text(), file)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found += [f"{file}:{node.lineno}: {arg.arg} has no type" for arg in node.args.args if not arg.annotation]
            found += [] if node.returns else [f"{file}:{node.lineno}: {node.name} does not say what it returns"]
print("\n".join(found))
sys.exit(bool(found))
