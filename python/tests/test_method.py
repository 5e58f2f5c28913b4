"""Methods written in Python, against those of the library."""

import json
import subprocess
import sys

import fedelity
import numpy as np
import pytest
from fedelity import Key, Method, Teacher


@fedelity.register
class MyProx(Method):
    name = "my-prox"
    mu = 0.01

    def adjust(self, client, weights, gradient):
        apart = weights - client.weights
        gradient += np.float32(self.mu) * apart
        return {"proximal": 0.5 * self.mu * float(apart @ apart)}


@fedelity.register
class MyNTD(Method):
    """FedNTD through the library's loss."""

    name = "my-ntd"
    beta = Key(1.0, min=0, about="Weight of the not-true distillation.")
    tau = Key(1.0, above=0)

    def teachers(self, client):
        return [Teacher()]

    def loss(self, step):
        return fedelity.loss("fedntd", step.logits, step.labels, step.teachers[0], beta=self.beta, tau=self.tau)


@fedelity.register
class MyNTDInNumpy(Method):
    """FedNTD in numpy alone."""

    name = "numpy-ntd"
    beta = 1.0
    tau = 1.0

    def teachers(self, client):
        return [Teacher()]

    def loss(self, step):
        rows, y, tau = np.arange(len(step.labels)), step.labels, self.tau
        def softmax(z):
            e = np.exp(z - z.max(1, keepdims=True))
            return e / e.sum(1, keepdims=True)
        p, masked = softmax(step.logits), np.stack([step.logits, step.teachers[0]]) / tau
        masked[:, rows, y] = -np.inf
        q, q_g = softmax(masked[0]), softmax(masked[1])
        loss = -np.log(p[rows, y]).mean() + self.beta * tau**2 * (q_g * np.log(np.where(q_g > 0, q_g / np.where(q > 0, q, 1), 1))).sum(1).mean()
        p[rows, y] -= 1
        return float(loss), ((p + self.beta * tau * (q - q_g)) / len(y)).astype(np.float32)


@fedelity.register
class Control(Method):
    """Every hook: a memory on clients, a state on the server, arrays both ways."""

    name = "control"
    needs = ["client-memory"]
    share = 0.5

    def sends(self, model):
        return {"moved": model.weights}

    def receives(self, model):
        return {"mean-move": model.weights}

    def init(self, server):
        return {"mean-move": np.zeros(server.model.weights, np.float32)}

    def prepare(self, server):
        return {"mean-move": server.state["mean-move"]}

    def finish(self, client, weights):
        assert ("moved" in client.memory) == (client.memory != {})
        moved = weights - client.weights + np.float32(self.share) * client.received["mean-move"]
        return {"moved": moved}, {"moved": moved}

    def collect(self, server, upload):
        server.add(upload.weights, upload.weight)
        server.add(upload.extra["moved"], 1.0, "moved")
        server.scratch["seen"] = np.append(server.scratch.get("seen", []), upload.client)

    def conclude(self, server):
        assert len(server.scratch["seen"]) == 3
        server.state["mean-move"] = server.means["moved"]
        return server.mean


@fedelity.register
class Average(Method):
    """The mean by hand, from all uploads."""

    name = "average"
    needs = ["each-upload"]

    def conclude(self, server):
        total = sum(np.float64(upload.weight) for upload in server.uploads)
        sums = sum(np.float64(upload.weight) * upload.weights.astype(np.float64) for upload in server.uploads)
        return (sums / total).astype(np.float32)


def last(config, folder, **options):
    result = fedelity.run(config, folder, **options)
    return result.runs[0].records[-1], result.runs[0].weights()


def apart(a, b):
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


@pytest.mark.parametrize("threads", [1, 2])
def test_fedprox_in_python_is_the_librarys(small, threads):
    config = lambda name: {**small, "model": {"name": "simple-cnn"}, "method": {"name": name, "mu": 0.1}}
    (mine, weights), (theirs, expected) = last(config("my-prox"), "a", threads=threads), last(config("fedprox"), "b")
    assert apart(weights, expected) < 1e-5
    assert mine["train-terms"]["proximal"] == pytest.approx(theirs["train-terms"]["proximal"], rel=1e-4)
    fedavg = last({**small, "model": {"name": "simple-cnn"}}, "c")[1]
    assert apart(weights, fedavg) > 1e-4


@pytest.mark.parametrize("model", ["mlp", "simple-cnn"])
def test_fedntd_in_python_has_the_bits_of_the_librarys(small, model):
    config = lambda name: {**small, "model": {"name": model}, "method": {"name": name, "beta": 0.7, "tau": 2.0}}
    theirs, expected = last(config("fedntd"), "b")
    mine, _ = last(config("my-ntd"), "a")
    assert mine["weights"] == theirs["weights"]
    assert mine["train-loss"] == pytest.approx(theirs["train-loss"], rel=1e-6)
    assert mine["bytes-up"] == theirs["bytes-up"]
    if model == "mlp":
        # Other rounding; a convolutional network enlarges it within a few rounds.
        _, weights = last(config("numpy-ntd"), "c")
        assert apart(weights, expected) < 1e-5


def test_without_hooks_it_is_fedavg(small):
    @fedelity.register
    class Plain(Method):
        name = "plain"

    expected = last(small, "a")[0]["weights"]
    assert last({**small, "method": {"name": "plain"}}, "b")[0]["weights"] == expected
    assert last({**small, "method": {"name": "average"}}, "c")[0]["weights"] == expected


def test_memory_state_and_arrays(small):
    config = {**small, "rounds": 5, "method": {"name": "control"}}
    one = last(config, "a", threads=1)[0]
    two = last(config, "b", threads=2)[0]
    assert one["weights"] == two["weights"]
    plain = last({**small, "rounds": 5}, "c")[0]
    assert one["bytes-up"] == 2 * plain["bytes-up"] and one["weights"] == plain["weights"]
    # A run that goes on has the state and the memories of one that never stopped.
    fedelity.run({**config, "rounds": 2}, "d")
    assert fedelity.resume("d", rounds=5).runs[0].records[-1]["weights"] == one["weights"]


def test_keys_are_checked_like_others(small):
    def run(**keys):
        fedelity.run({**small, "method": {"name": "my-ntd", **keys}})

    with pytest.raises(fedelity.ConfigError, match=r"config: method\.tau = 0\.0: expected a finite number above 0"):
        run(tau=0.0)
    with pytest.raises(fedelity.ConfigError, match="did you mean 'method.beta'"):
        run(bta=1.0)
    with pytest.raises(fedelity.ConfigError, match="expected a finite number of at least 0, found the string"):
        run(beta="much")
    with pytest.raises(fedelity.ConfigError, match="did you mean 'my-prox'"):
        fedelity.run({**small, "method": {"name": "my-prx"}})
    run_config = fedelity.run({**small, "rounds": 1, "method": {"name": "my-ntd", "beta": 2}}, "x").runs[0].config
    assert run_config["method"] == {"name": "my-ntd", "beta": 2.0, "tau": 1.0}


def test_mistakes_in_hooks_are_shown(small):
    @fedelity.register
    class Wrong(Method):
        name = "wrong"
        how = "raise"

        def loss(self, step):
            value, grad = fedelity.loss("fedavg", step.logits, step.labels)
            match self.how:
                case "raise":
                    return {}["no such key"]
                case "type":
                    return value, grad.astype(np.float64)
                case "shape":
                    return value, grad[:, 1:]
                case "alone":
                    return value
                case "terms":
                    return {str(i): 0.1 for i in range(9)}, grad
                case "nan":
                    return float("nan"), grad

    def run(how):
        return fedelity.run({**small, "method": {"name": "wrong", "how": how}}, how)

    with pytest.raises(fedelity.MethodError) as raised:
        run("raise")
    assert "the method 'wrong': its hook loss raised KeyError: 'no such key'" in str(raised.value)
    assert "test_method.py" in str(raised.value) and isinstance(raised.value.__cause__, KeyError)
    for how, text in [
        ("type", "the gradient of the logits is an array of float32, found float64"),
        ("shape", r"expected \(\d+, 10\)"),
        ("alone", "expected \\(loss, gradient"),
        ("terms", "at most 4 terms"),
    ]:
        with pytest.raises(fedelity.MethodError, match=text):
            run(how)
    @fedelity.register
    class Undeclared(Method):
        name = "undeclared"

        def sends(self, model):
            return {"x": len(model.nothing)}

    with pytest.raises(fedelity.MethodError, match="its hook sends raised AttributeError"):
        fedelity.run({**small, "method": {"name": "undeclared"}}, "u")
    Undeclared.sends = lambda self, model: {"x": -1}
    with pytest.raises(fedelity.MethodError, match="ValueError: the length of 'x' = -1: expected a whole number from 0 to"):
        fedelity.run({**small, "method": {"name": "undeclared"}}, "v")
    with pytest.warns(UserWarning, match="training diverged"):
        assert "diverged" in json.dumps(run("nan").runs[0].summary["status"])


def test_declarations_are_checked():
    with pytest.raises(TypeError, match="expected a subclass"):
        fedelity.register(int)
    with pytest.raises(TypeError, match="a method has a name"):
        @fedelity.register
        class Nameless(Method):
            pass

    with pytest.raises(TypeError, match="Odd.table: a hyper-parameter is"):
        @fedelity.register
        class Odd(Method):
            name = "odd"
            table = [1, 2]

    with pytest.raises(ValueError, match="there is already a method 'fedavg'"):
        @fedelity.register
        class Taken(Method):
            name = "fedavg"

    # Nothing is left of them, and a class that is defined again, with a mistake, leaves the earlier one.
    @fedelity.register
    class Good(Method):
        name = "odd"
        mu = 0.5

    with pytest.raises(TypeError, match="Bad.mu"):
        @fedelity.register
        class Bad(Method):
            name = "odd"
            mu = None

    assert fedelity.methods()["odd"]["keys"]["mu"]["default"] == 0.5
    fedelity._method._registered.pop("odd")


def test_a_class_that_is_defined_again_replaces_the_earlier_one(small):
    for factor in (1.0, 0.0):
        @fedelity.register
        class Again(Method):
            name = "again"
            strength = factor

            def adjust(self, client, weights, gradient):
                gradient *= np.float32(self.strength)

        last({**small, "rounds": 1, "method": {"name": "again"}}, f"run-{factor}")
    before = fedelity.Server(small).weights()
    assert apart(fedelity.Result("run-0.0").runs[0].weights(), before) < 1e-4  # weight decay
    assert apart(fedelity.Result("run-1.0").runs[0].weights(), before) > 1e-3


def test_the_command_knows_them_too(small, tmp_path):
    """Sweeps, reports, verification and resumption, in this process; elsewhere, the message says what to do."""
    (tmp_path / "base.toml").write_text('rounds = 2\n[partition]\nclients = 4\n[clients]\nper-round = 2\n[model]\nname = "mlp"\n[evaluation]\nmetrics = "fast"\n')
    (tmp_path / "sweep.toml").write_text('config = "base.toml"\nseeds = [1]\n[grid]\n"method.name" = ["fedprox", "my-prox"]\n')
    assert fedelity.command(["sweep", "sweep.toml", "-o", "out"]) == 0
    assert fedelity.command(["report", "out", "-o", "report.html"]) == 0
    assert "my-prox" in (tmp_path / "report.html").read_text()
    runs = {run.method: run for run in fedelity.Result("out")}
    assert apart(runs["my-prox"].weights(), runs["fedprox"].weights()) < 1e-5
    mine = str(runs["my-prox"].path)
    assert fedelity.command(["verify", mine]) == 0
    assert fedelity.command(["resume", mine, "--set", "rounds=3"]) == 0
    for command in (["verify", mine], ["resume", mine]):
        done = subprocess.run([sys.executable, "-m", "fedelity", *command], capture_output=True, text=True)
        assert done.returncode == 2, done
        assert "method.name = \"my-prox\": expected one of" in done.stderr
        assert "A method written in Python" in done.stderr and "fedelity.register" in done.stderr
    assert fedelity.command(["methods", "my-ntd", "--json"]) == 0
