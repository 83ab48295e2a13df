import pytest

from service.settings import Settings, SettingsError, worker_environment


def test_an_empty_variable_counts_as_absent():
    assert Settings.from_environment({"DATABASE_URL": ""}).database_url is None


@pytest.mark.parametrize("mode", ["open", "keys"])
def test_the_access_mode_is_one_of_two(mode):
    assert Settings.from_environment({"ACCESS_MODE": mode}).access_mode == mode


def test_a_variable_with_an_impossible_value_is_named():
    with pytest.raises(SettingsError, match=r"^ACCESS_MODE: .*'open' or 'keys'"):
        Settings.from_environment({"ACCESS_MODE": "opne"})


def test_the_processes_that_serve_are_told_the_mode_and_not_the_owner(monkeypatch):
    monkeypatch.setenv("DATABASE_MIGRATION_URL", "postgresql://owner@/plans")
    environment = worker_environment("postgresql://service@/plans", "/metrics", "keys")
    assert environment["ACCESS_MODE"] == "keys"
    assert environment["DATABASE_URL"] == "postgresql://service@/plans"
    assert "DATABASE_MIGRATION_URL" not in environment
