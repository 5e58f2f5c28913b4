"""Trained models, the list of methods and the command."""

import subprocess
import sys

import fedelity
import numpy as np
import pytest


def test_evaluate_predict_export(small):
    run = fedelity.run(small, "out").runs[0]
    found = fedelity.evaluate(run)
    assert found.accuracy == pytest.approx(run.curve()[-1]) and found.details["samples"] == found.samples
    assert fedelity.evaluate("out/model.safetensors", data="fashion-mnist-mini").loss == pytest.approx(found.loss)
    x, y = np.random.default_rng(0).integers(0, 255, (20, 28, 28)).astype(np.uint8), np.arange(20) % 10
    probabilities = fedelity.predict("out", x)
    assert probabilities.shape == (20, 10) and np.allclose(probabilities.sum(1), 1, atol=1e-5)
    share = (probabilities.argmax(1) == y).mean()
    assert fedelity.evaluate(run, x, y).accuracy == pytest.approx(share)
    fedelity.export(run, onnx="m.onnx", pytorch="m.py")
    with pytest.raises(fedelity.Error, match="m.onnx"):
        fedelity.export(run, onnx="m.onnx")
    fedelity.export(run, onnx="m.onnx", overwrite=True)
    with pytest.raises(fedelity.Error, match="nothing to write"):
        fedelity.export(run)
    with pytest.raises(TypeError, match="give x and y, or data"):
        fedelity.evaluate(run, x)
    with pytest.raises(fedelity.Error, match="nowhere"):
        fedelity.predict("nowhere", x)
    with pytest.raises(fedelity.Error, match="nowhere"):
        fedelity.evaluate("nowhere")


def test_a_model_of_a_method_in_python_is_used_anywhere(small):
    @fedelity.register
    class Mine(fedelity.Method):
        name = "mine"

    run = fedelity.run({**small, "method": {"name": "mine"}}, "out").runs[0]
    del fedelity._method._registered["mine"]
    assert fedelity.evaluate(run).accuracy == pytest.approx(run.curve()[-1])


def test_methods():
    found = fedelity.methods()
    assert list(found)[:2] == ["fedavg", "fedprox"] and len(found) >= 17
    assert found["fedntd"]["keys"]["tau"]["expected"] == "a finite number above 0"


def test_the_command_is_the_binarys(small):
    def command(*arguments):
        return subprocess.run([sys.executable, "-m", "fedelity", *arguments], capture_output=True, text=True)

    assert command("--version").stdout == f"fedelity {fedelity.__version__}\n"
    assert command("--help").returncode == 0 and "fedelity run" in command("--help").stdout
    assert command().returncode == 2 and command("no-such-command").returncode == 2
    done = command("run", "no.toml")
    assert done.returncode == 2 and done.stderr.startswith("error: cannot read no.toml")
    done = command("run", "--set", "rounds=1", "--set", "partition.clients=2", "--set", "optimizer.lr=1e30", "--output", "x")
    assert done.returncode == 1, done.stderr
