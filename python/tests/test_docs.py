"""Docstrings run, and types hold."""

import doctest
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import fedelity
import pytest

# In this order: later examples use the runs of earlier ones.
MODULES = ["_run", "_result", "_loss", "_method", "_data", "_trained", "_command"]


def test_docstrings():
    found = 0
    for name in MODULES:
        module = importlib.import_module(f"fedelity.{name}")
        failed, tried = doctest.testmod(module)
        assert failed == 0, name
        found += tried
    assert found > 15
    # What runs on Flower is tested in flower-app/tests.
    known = {*MODULES, "_fedelity", "_progress", "__main__", "flower", "node"}
    assert not {info.name for info in pkgutil.iter_modules(fedelity.__path__)} - known


def test_everything_public_is_described():
    for name in fedelity.__all__:
        thing = getattr(fedelity, name)
        if name != "__version__":
            assert inspect.getdoc(thing), name
    for hidden in ["Server", "Client", "ServerView", "StepView"]:
        for name, member in vars(getattr(fedelity._fedelity, hidden)).items():
            if not name.startswith("_") and callable(member):
                assert inspect.getdoc(member), (hidden, name)


def test_types(tmp_path):
    pytest.importorskip("mypy")
    settings = tmp_path / "mypy.ini"
    # Flower, which has types of its own, need not be installed.
    settings.write_text(
        "[mypy]\nstrict = True\n[mypy-pandas.*]\nignore_missing_imports = True\n"
        "[mypy-fedelity.flower.*,fedelity.node.*]\nignore_errors = True\n"
    )
    for tool in (
        ["mypy", "--config-file", settings, "-p", "fedelity"],
        ["mypy.stubtest", "--mypy-config-file", settings, "fedelity._fedelity"],
    ):
        done = subprocess.run([sys.executable, "-m", *tool], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


BOOK = sorted((Path(__file__).parents[2] / "docs").glob("python*.md"))


@pytest.mark.parametrize("page", BOOK, ids=lambda page: page.stem)
def test_the_book(page):
    """The code of a page runs, from top to bottom."""
    space = {}
    blocks = re.findall(r"^```python(?: module=(\w+))?\n(.*?)^```$", page.read_text(), re.M | re.S)
    assert blocks
    for module, code in blocks:
        if not module or importlib.util.find_spec(module):
            exec(compile(code, str(page), "exec"), space)
