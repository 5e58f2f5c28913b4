"""Every test works in a folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDELITY_DATA", raising=False)


@pytest.fixture
def small():
    """A federation that trains in a moment."""
    return {
        "rounds": 3,
        "partition": {"clients": 5},
        "clients": {"per-round": 3, "epochs": 1},
        "model": {"name": "mlp"},
        "evaluation": {"metrics": "fast"},
    }
