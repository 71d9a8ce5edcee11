import pytest

pytest.register_assert_rewrite("holdfast.testing.contract")
