import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[3] / "docs" / "CAPTURE.md"


def test_the_example_in_the_document_runs():
    found = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(block, found)
    assert found["notes"].lines == ["planned", "pushed"]
    assert found["run"].head.section("notes") == ["planned", "pushed"]
    assert found["run"].head.trigger == "shutdown"
