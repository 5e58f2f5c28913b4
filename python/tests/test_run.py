"""Runs from Python."""

import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import fedelity
import numpy as np
import pytest


def test_a_dict_a_file_and_toml_are_the_same(small, tmp_path):
    toml = """
rounds = 3
[partition]
clients = 5
[clients]
per-round = 3
epochs = 1
[model]
name = "mlp"
[evaluation]
metrics = "fast"
"""
    (tmp_path / "file.toml").write_text(toml)
    results = [
        fedelity.run(config, output)
        for config, output in [(small, "a"), (toml, "b"), ("file.toml", "c"), (tmp_path / "file.toml", "d")]
    ]
    found = {result.runs[0].records[-1]["weights"]["sha256"] for result in results}
    assert len(found) == 1
    assert results[0].curve().shape == (1, 3) and results[0].curve().dtype == np.float64
    # The command, installed with the package, gives the same.
    done = subprocess.run(
        [sys.executable, "-m", "fedelity", "run", "file.toml", "--output", "e", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["weights"]["sha256"] in found


def test_errors_keep_their_text(small, tmp_path):
    with pytest.raises(fedelity.ConfigError, match=r"config: clients\.batch = 0: expected"):
        fedelity.run({"clients": {"batch": 0}})
    (tmp_path / "x.toml").write_text("[clients]\n  batch = 0\n")
    with pytest.raises(fedelity.ConfigError, match=r"x\.toml:2:3: clients\.batch = 0: expected"):
        fedelity.run("x.toml")
    with pytest.raises(fedelity.ConfigError, match=r"config:1:10: "):
        fedelity.run("rounds = =")
    with pytest.raises(fedelity.ConfigError, match="cannot read no.toml"):
        fedelity.run("no.toml")
    with pytest.raises(fedelity.ConfigError, match="did you mean 'method.mu'"):
        fedelity.run({"method": {"name": "fedprox", "mo": 1}})
    with pytest.raises(fedelity.ConfigError, match=r"config: clients\.epochs: None is not a value"):
        fedelity.run({"clients": {"epochs": None}})
    with pytest.raises(TypeError, match="found int"):
        fedelity.run(3)
    with pytest.raises(fedelity.Error, match="out"):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").touch()
        fedelity.run(small, "out")
    assert not (tmp_path / "runs").exists()


def test_several_methods_and_seeds(small):
    config = {**small, "seeds": [1, 2], "method": [{"name": "fedavg"}, {"name": "fedprox", "mu": np.float64(0.1)}]}
    seen = []
    result = fedelity.run(config, "out", progress=seen.append, threads=1)
    assert [(run.method, run.seed) for run in result] == [("fedavg", 1), ("fedavg", 2), ("fedprox", 1), ("fedprox", 2)]
    assert len(seen) == 12 and seen[0]["rounds"] == 3 and seen[-1]["round"] == 3
    assert result.curve("accuracy").shape == (4, 3) and result.curve("loss", "fedprox").shape == (2, 3)
    with pytest.raises(ValueError, match="no run of the method 'fedpox': there are runs of fedavg, fedprox"):
        result.curve("loss", "fedpox")
    for wrong, said in [
        ("acuracy", "no number 'acuracy' in the record of a round; did you mean 'accuracy'[?] There are .*forgetting"),
        ("class-accuracy", "lists are in records"),
        ("seconds", "did you mean 'seconds.train'"),
    ]:
        for curve in (result.curve, result.runs[0].curve):
            with pytest.raises(ValueError, match=said):
                curve(wrong)
    # What this run did not measure, what only one method has, and a value with its interval.
    assert np.isnan(result.curve("local.accuracy.mean")).all() and np.isnan(result.curve("validation.loss")).all()
    assert np.isnan(result.curve("train-terms.proximal")).tolist() == [[True] * 3] * 2 + [[False] * 3] * 2
    assert (result.curve("scores.accuracy") == result.curve("accuracy")).all()
    assert result.runs[2].config["method"] == {"name": "fedprox", "mu": 0.1}
    table = repr(result)
    assert "fedprox" in table and "final %" in table
    html = result._repr_html_()
    assert html.count("<svg") == 2 and "fedprox" in html and "<script" not in html


def test_resuming_prolongs(small):
    whole = fedelity.run({**small, "rounds": 4}, "whole")
    fedelity.run(small, "part")
    part = fedelity.resume("part", rounds=4)
    assert part.runs[0].records[-1]["weights"] == whole.runs[0].records[-1]["weights"]


def test_whole_numbers_are_checked(small):
    fedelity.run(small, "part")
    for number in (-1, 0, 2**70):
        with pytest.raises(ValueError, match=f"rounds = {number}: expected a whole number from 1 to 4294967295"):
            fedelity.resume("part", rounds=number)
        for act in (fedelity.run, fedelity.Server, lambda config, threads: fedelity.resume("part", threads=threads)):
            with pytest.raises(ValueError, match=f"threads = {number}: expected a whole number from 1 to 1024"):
                act(small, threads=number)
    with pytest.raises(TypeError, match="threads: expected a whole number from 1 to 1024, found float"):
        fedelity.run(small, threads=1.5)
    assert fedelity.run(small, threads=np.int8(1)).curve().shape == (1, 3)


def test_to_pandas(small):
    pandas = pytest.importorskip("pandas")
    frame = fedelity.run(small, "out").to_pandas()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 3
    assert {"method", "seed", "round", "accuracy", "seconds.train"} <= set(frame.columns)


def test_a_notebook_draws_the_curves(tmp_path, monkeypatch):
    """A notebook is executed, and what it shows has the table and a picture with a line for each run."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat, nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    code = """
import fedelity
config = {"rounds": 4, "partition": {"clients": 5}, "clients": {"epochs": 1}, "model": {"name": "mlp"}}
fedelity.run({**config, "method": [{"name": "fedavg"}, {"name": "fedntd"}]}, "out")
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    shown = [output.data for output in outputs if output.output_type == "execute_result"]
    assert len(shown) == 1, outputs
    assert "final %" in shown[0]["text/plain"]
    html = shown[0]["text/html"]
    assert "final %" in html
    pictures = re.findall(r"<svg.*?</svg>", html, re.S)
    assert pictures
    for picture in pictures:
        drawn = ElementTree.fromstring(picture)
        space = {"svg": "http://www.w3.org/2000/svg"}
        assert {"fedavg", "fedntd", "round"} <= {text.text for text in drawn.findall(".//svg:text", space)}
        # The legend's colours, and a line through the rounds in each of them; forgetting begins with the second round.
        paths = [(path.get("stroke"), path.get("d").count("L")) for path in drawn.findall(".//svg:path", space)]
        legend = {paths[0][0], paths[1][0]}
        assert len(legend) == 2 and legend <= {stroke for stroke, pieces in paths if pieces >= 2}
    assert "Accuracy" in pictures[0] and "accuracy (%)" in pictures[0]
    # Nothing is fetched, and nothing runs.
    assert "<script" not in html and "http" not in html.replace("http://www.w3.org/", "")
