"""The rule of `make lint` on calls by a path: it sees them in every spelling, and says nothing of descriptors."""

import pytest

from path_calls import problems

SEEN = {
    "import shutil\nshutil.rmtree(place)": "shutil.rmtree",
    "import shutil\nstack.callback(shutil.rmtree, place)": "shutil.rmtree",
    "from shutil import rmtree": "shutil.rmtree",
    "import os\nos.replace(one, two)": "os.replace",
    "import os\nos.open(file, flags)": "os.open",
    "import os\nos.open(file, os.O_RDONLY | os.O_CREAT)": "os.open",
    "open(file, 'w')": "open",
    "open(file, mode=mode)": "open",
    "place.open('ab')": ".open",
    "(place / 'a').write_text(text)": ".write_text",
    "place.replace(other)": ".replace",
    "place.unlink(missing_ok=True)": ".unlink",
    "[*place.glob('*.json')]": ".glob",
}
NOT_SEEN = (
    "import shutil\nshutil.rmtree(name, dir_fd=folder)",
    "import os\nos.unlink(name, dir_fd=folder)",
    "import os\nos.open(file, os.O_RDONLY | os.O_NOFOLLOW)",
    "self._ops.unlink(folder, name)",
    "open(file)",
    "open(os.open(name, os.O_WRONLY, dir_fd=folder), 'wb')",
    "text.replace('a', 'b')",
    "dataclasses.replace(one, two=2)",
)


@pytest.mark.parametrize("code", [*SEEN, *NOT_SEEN])
def test_a_call_by_a_path_is_refused_in_every_module_that_does_not_say_why(tmp_path, code):
    (tmp_path / "new.py").write_text(code)
    told = [line.split(": ")[1].split()[0] for line in problems(tmp_path, {})]
    assert told == ([SEEN[code]] if code in SEEN else [])
    if told:
        assert list(problems(tmp_path, {"new.py": (told[0], "it is safe")})) == []


def test_what_is_allowed_and_not_done_any_more_is_told(tmp_path):
    (tmp_path / "new.py").write_text("")
    assert list(problems(tmp_path, {"new.py": ("os.unlink", "it was safe")})) == [
        "tests/path_calls.py: new.py makes no call os.unlink any more"
    ]
