import apsw
import pytest

import holdfast
from holdfast.errors import NotFound
from holdfast.store.sqlite_rows import run_of


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_commit_between_the_two_looks_of_a_reader_is_no_damage(tmp_path, is_begun):
    """Proves X3: what is sound is not called damaged, however busy the other process is."""
    with holdfast.open(tmp_path / "store.db", interval_s=None) as hf:
        run = hf.run("r")
        if is_begun:
            run.checkpoint(state=0)
        connection = apsw.Connection(str(tmp_path / "store.db"))
        commits = []

        def execute(query, given=()):
            if "seq >" in query and len(commits) < 3:
                commits.append(run.checkpoint(state=len(commits)))
            return connection.execute(query, given)

        _number, record = run_of(execute, "r")
        assert (record.last_seq, record.head) == (commits[-1].seq, commits[-1].id)
        with pytest.raises(NotFound):
            run_of(execute, "another")
        connection.close()
