"""Losses against golden vectors and finite differences."""

import json
from pathlib import Path

import fedelity
import numpy as np
import pytest

GOLDEN = Path(__file__).parents[2] / "golden" / "losses.json"


def array(value):
    return np.array(value, np.float32)


def called(case):
    """A golden case as a call of `loss`, and the part of the loss that is the cross-entropy's and not the case's."""
    inputs, params, method = case["inputs"], dict(case["params"]), case["method"]
    logits = array(inputs["student_logits"]) if "student_logits" in inputs else None
    labels = np.array(inputs.get("labels", []))
    teacher = array(inputs["teacher_logits"]) if "teacher_logits" in inputs else None
    match method:
        case "ce":
            return ("fedavg", logits, labels), {}, False
        case "fedlsd" | "fedntd":
            return (method, logits, labels, teacher), params, False
        case "fedcad":
            return (method, logits, labels, teacher), {**params, "received": {"class-alpha": array(inputs["class_alpha"])}}, False
        case "fedssd":
            received = {"credibility": array(inputs["credibility"])}
            return (method, logits, labels, teacher), {**params, "received": received}, False
        case "fedgkd":
            return (method, logits, labels, teacher), {"gamma": params["gamma"], "temperature": 1.0}, False
        case "fedgkd-mse":
            gamma = 2 * params["alpha"] / 1.0
            return ("fedgkd", logits, labels, teacher), {"gamma": gamma, "loss": "mse"}, False
        case "fedgkd-vote":
            teachers = [array(one) for one in inputs["teachers_logits"]]
            received = {"half-gammas": array(params["half_gammas"])}
            return (method, logits, labels, teachers), {"received": received, "buffer": len(teachers), "temperature": 1.0}, False
        case "fedelity":
            taught = teacher if params["teacher"] else None
            return (method, logits, labels, taught), {**params, "counts": np.array(inputs["label_counts"])}, False
        case "group-distillation":
            names = {"alpha_t": "alpha_true", "alpha_r": "alpha_rich", "alpha_f": "alpha_few"}
            hyper = {names.get(key, key): value for key, value in params.items()}
            hyper |= {"beta_logits": 1.0, "beta_extractor": 0.0, "beta_classifier": 0.0}
            return ("feddistill", logits, labels, teacher), {**hyper, "counts": np.array(inputs["label_counts"])}, True
        case "moon":
            n = len(inputs["features"])
            features = array(inputs["features"])
            others = [array(inputs["global_features"]), array(inputs["previous_features"])]
            given = {"features": features, "teacher_features": others}
            return ("moon", np.zeros((n, 2), np.float32), np.zeros(n, int)), {**params, **given}, True
        case "feddistill-plus":
            held = array(inputs["table_has_class"])
            received = {"logits": array(inputs["logit_table"]) * held[:, None], "classes-held": held}
            return (method, logits, labels), {**params, "received": received}, False
        case "feddistill-gd":
            features, teacher_features = array(inputs["features"]), array(inputs["global_features"])
            head = array(inputs["head_weight"]), array(inputs["head_bias"])
            teacher_head = array(inputs["global_head_weight"]), array(inputs["global_head_bias"])
            logits, teacher = features @ head[0].T + head[1], teacher_features @ teacher_head[0].T + teacher_head[1]
            given = {"features": features, "teacher_features": [teacher_features], "head": head}
            given |= {"teacher_heads": [teacher_head], "counts": np.array(inputs["label_counts"])}
            return ("feddistill", logits, labels, teacher), {**params, **given}, False
    return None


CASES = json.loads(GOLDEN.read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case):
    call = called(case)
    arguments, options, without = call
    value, *grads = fedelity.loss(*arguments, **options)
    plain, *zero = fedelity.loss("fedavg", *arguments[1:3])
    expected = case["expect"]
    if without:
        value -= plain
        grads[0] = grads[0] - zero[0]
    assert value == pytest.approx(expected["loss"], rel=2e-5, abs=2e-6)
    wanted = {"grad_student_logits": grads[0], "grad_features": grads[1] if len(grads) > 1 else None}
    if "head" in options:
        # The whole gradient: what comes through the logits, too.
        weight, features, through = options["head"][0], options["features"], grads[0]
        wanted["grad_features"] = grads[1] + through @ weight
        wanted["grad_head_weight"] = grads[2][0] + through.T @ features
        wanted["grad_head_bias"] = grads[2][1] + through.sum(0)
    for name in set(expected) - {"loss"}:
        exact = np.array(expected[name])
        scale = max(np.abs(exact).max(), 1e-3)
        assert np.abs(wanted[name] - exact).max() <= 3e-5 * scale, name


def test_every_method_is_in_the_golden_cases():
    """All losses on logits and features have golden cases."""
    tested = {called(case)[0][0] for case in CASES}
    logits = {"fedavg", "fedlsd", "fedntd", "fedcad", "fedssd", "fedgkd", "fedgkd-vote", "feddistill-plus"}
    assert tested == {*logits, "feddistill", "fedelity", "moon"}


TAUGHT = {
    "fedntd": {"tau": 2.0},
    "fedlsd": {"tau_squared": True},
    "fedgkd": {},
    "fedgkd-plus": {},
    "fedcad": {"received": {"class-alpha": array([0.1, 0.5, 0.9])}},
    "fedssd": {"received": {"credibility": array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0, 0.1, 0.9]])}},
    "fedgkd-vote": {"received": {"half-gammas": array([0.3])}},
    "feddistill": {"beta_extractor": 0.0, "beta_classifier": 0.0, "counts": np.array([5, 1, 0])},
    "fedelity": {"counts": np.array([5, 1, 0])},
    "fedavg": {},
    "fedprox": {},
}


# Clients of these train on the cross-entropy; what else they do is on the weights, or on the server.
PLAIN = {"fedavg", "fedprox", "fedcurv", "fednova", "scaffold", "feddf"}


def test_every_method_has_its_loss():
    """Every method of the library: with what it reads, its loss is not the cross-entropy alone."""
    rng = np.random.default_rng(2)
    z, t, f, g, p = (rng.normal(0, 2, (4, 3)).astype(np.float32) for _ in range(5))
    y, head = np.array([0, 2, 1, 0]), (array(rng.normal(size=(3, 3))), array([0.1, 0.2, 0.3]))
    reads = {
        **TAUGHT,
        "fedgkd-vote": {"received": {"half-gammas": array([0.3])}},
        "feddistill": {"counts": np.array([5, 1, 0]), "features": f, "teacher_features": [g], "head": head, "teacher_heads": [head]},
        "feddistill-plus": {"received": {"logits": array(rng.normal(size=(3, 3))), "classes-held": np.ones(3, np.float32)}},
        "fedgen": {"received": {"generator": np.ones(15, np.float32), "labels": np.ones(3, np.float32)}, "hidden": 1, "noise": 1, "head": head},
        "moon": {"features": f, "teacher_features": [g, p]},
    }
    plain = fedelity.loss("fedavg", z, y)[0]
    untaught = {*PLAIN, "feddistill-plus", "fedgen", "moon"}
    for name in set(fedelity.methods()) - set(fedelity._method.registered()):
        value = fedelity.loss(name, z, y, None if name in untaught else t, **reads.get(name, {}))[0]
        assert np.isfinite(value) and (value == plain) == (name in PLAIN), name


@pytest.mark.parametrize("method", TAUGHT)
def test_the_gradient_is_the_derivative(method):
    rng = np.random.default_rng(3)
    z, t, y = rng.normal(0, 2, (4, 3)).astype(np.float32), rng.normal(0, 2, (4, 3)).astype(np.float32), np.array([0, 2, 1, 0])
    teacher = None if method in ("fedavg", "fedprox") else t
    value, grad = fedelity.loss(method, z, y, teacher, **TAUGHT[method])
    assert isinstance(value, float) and grad.shape == z.shape and grad.dtype == np.float32
    step = 1e-2
    for place in np.ndindex(z.shape):
        ends = []
        for sign in (1, -1):
            moved = z.copy()
            moved[place] += sign * step
            ends.append(fedelity.loss(method, moved, y, teacher, **TAUGHT[method])[0])
        assert grad[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=2e-3)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_fedgen_with_a_generator():
    """A generator that ignores its noise, and knows one class, has a loss that is easily written."""
    rng = np.random.default_rng(5)
    classes, noise, hidden, features, n = 3, 2, 4, 5, 6
    w1, b1, scale, shift = rng.normal(size=(classes + noise, hidden)), *rng.normal(size=(3, hidden))
    w2, b2, mean, var = rng.normal(size=(hidden, features)), rng.normal(size=features), rng.normal(size=hidden), np.full(hidden, 2.0)
    w1[classes:] = 0
    parts = [w1, b1, scale, shift, w2, b2, mean, var]
    generator = np.concatenate([part.ravel() for part in parts]).astype(np.float32)
    generated = np.maximum((w1[:classes] + b1 - mean) / np.sqrt(var + 1e-5) * scale + shift, 0) @ w2 + b2
    weight, bias = rng.normal(size=(classes, features)), rng.normal(size=classes)
    z, y = rng.normal(0, 2, (n, classes)), rng.integers(0, classes, n)
    received = {"generator": generator, "labels": array([0, 1, 0])}
    hyper = {"alpha": 0.5, "beta": 0.3, "decay": 1.0, "batch": 3, "hidden": hidden, "noise": noise}
    value, grad, (grad_weight, grad_bias) = fedelity.loss(
        "fedgen", array(z), y, head=(array(weight), array(bias)), received=received, seed=7, **hyper
    )
    heads = softmax(generated @ weight.T + bias)
    taught, p, factor = heads[y], softmax(z), 0.5 * 3 / n
    expected = -np.log(p[range(n), y]).mean() + 0.3 * (taught * np.log(taught / p)).sum(1).mean() - factor * np.log(heads[1, 1])
    assert value == pytest.approx(expected, rel=1e-4)
    hot = np.eye(classes)
    assert np.abs(grad - (p - hot[y] + 0.3 * (p - taught)) / n).max() < 1e-5
    assert np.abs(grad_bias - factor * (heads[1] - hot[1])).max() < 1e-5
    assert np.abs(grad_weight - factor * np.outer(heads[1] - hot[1], generated[1])).max() < 1e-4
    # In a first round there is no generator; noise depends on the seed.
    assert fedelity.loss("fedgen", array(z), y, **hyper)[0] == fedelity.loss("fedavg", array(z), y)[0]
    generator[classes * hidden : (classes + noise) * hidden] = 1
    values = [
        fedelity.loss("fedgen", array(z), y, head=(array(weight), array(bias)), received=received, seed=seed, **hyper)[0]
        for seed in (1, 2, 1)
    ]
    assert values[0] == values[2] != values[1]


HEAD = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
BOTH = {"head": HEAD, "teacher_heads": [HEAD], "features": np.ones((4, 4), np.float32), "teacher_features": [np.ones((4, 4), np.float32)]}
GENERATOR = {"received": {"generator": np.zeros(11, np.float32), "labels": np.ones(3, np.float32)}, "hidden": 1, "noise": 1}


def test_mistakes_are_named():
    z, y = np.zeros((4, 3), np.float32), np.array([0, 2, 1, 0])
    # A number that equals a bool does not make the bool a number.
    fedelity.loss("fedntd", z, y, z, beta=1)
    with pytest.raises(fedelity.ConfigError, match="found the boolean true"):
        fedelity.loss("fedntd", z, y, z, beta=True)
    for arguments, options, error, text in [
        (("fedntd", z, y), {}, ValueError, "its loss has 1 teachers, and the outputs of 0 were given"),
        (("fedavg", z, y, z), {}, ValueError, "its loss has 0 teachers, and the outputs of 1 were given"),
        (("fedntd", z.astype(float), y, z), {}, TypeError, "logits: expected a matrix of float32, found float64"),
        (("fedntd", z, y, z[:3]), {}, ValueError, r"teacher_logits\[0\]: expected shape \(4, 3\), found \[3, 3\]"),
        (("fedntd", z, y[:3], z), {}, ValueError, r"logits: expected shape \(3, 3\)"),
        (("fedntd", z, y + 1, z), {}, ValueError, "labels: 3 is not one of 3 classes"),
        (("fedntd", z, y.astype(float), z), {}, TypeError, "labels: expected class numbers"),
        (("fedntd", np.asfortranarray(z), y, z), {}, ValueError, "in one piece"),
        (("fedntd", z[0], y, z), {}, ValueError, "two classes or more"),
        (("fedntd", z, y, z), {"beta": [1]}, fedelity.ConfigError, "fedntd.beta: expected a finite number"),
        (("fedntd", z, y, z), {"bta": 1}, fedelity.ConfigError, "did you mean 'fedntd.beta'"),
        (("fedntd", z, y, z), {"tau": -1.0}, fedelity.ConfigError, "expected a finite number above 0"),
        (("fedmtd", z, y, z), {}, fedelity.ConfigError, "expected one of fedavg"),
        (("fedcad", z, y, z), {}, ValueError, "class-alpha"),
        (("fedcad", z, y, z), {"received": {"class-alpha": array([1])}}, ValueError, "class-alpha"),
        (("feddistill", z, y, z), {}, ValueError, "the model's head, whose weights were not given: head"),
        (("feddistill", z, y, z), {"head": HEAD}, ValueError, "the teacher's head, whose weights were not given: teacher_heads"),
        (("feddistill", z, y, z), {"head": HEAD, "teacher_heads": [HEAD]}, ValueError, "were not given: teacher_features"),
        (("feddistill", z, y, z), {**BOTH, "beta_extractor": 0.1, "features": None}, TypeError, "give features="),
        (("feddistill", z, y, z), {**BOTH, "teacher_heads": [HEAD, HEAD]}, ValueError, "1 teachers, and teacher_heads of 2"),
        (("feddistill", z, y, z), {**BOTH, "head": (HEAD[0].T, HEAD[1])}, ValueError, r"head: weight: expected shape \(3, 4\)"),
        (("feddistill", z, y, z), {**BOTH, "head": (HEAD[0], HEAD[1][:2])}, TypeError, "head: bias: expected 3 numbers"),
        (("fedgen", z, y), {**GENERATOR, "alpha": 0.0}, ValueError, "the model's head"),
        (("moon", z, y, [z, z]), {"features": z}, ValueError, "were not given: teacher_features"),
        (("moon", z, y), {"teacher_features": [z, z]}, TypeError, "give features="),
        (("fedavg", z, y), {"seed": -1}, ValueError, "seed = -1: expected a whole number from 0 to 18446744073709551615"),
        (("fedavg", z, y), {"seed": 2**64}, ValueError, "seed = 18446744073709551616: expected"),
        (("fedelity", z, y, z), {"counts": np.array([3, -1, 0])}, ValueError, r"counts\[1\] = -1: expected a whole number from 0"),
        (("fedelity", z, y, z), {"counts": np.array([3.0, 1, 0])}, TypeError, r"counts\[0\]: .* found float"),
    ]:
        with pytest.raises(error, match=text):
            fedelity.loss(*arguments, **options)


def test_in_pytorch():
    """What the book shows, in ten lines."""
    torch = pytest.importorskip("torch")
    book = (Path(__file__).parents[2] / "docs" / "python-losses.md").read_text()
    lines = book[book.index("class Distil(") : book.index("model, x, y = torch")].rstrip()
    assert lines.count("\n") + 1 <= 10
    space = {"torch": torch, "fedelity": fedelity}
    exec(lines, space)
    Distil = space["Distil"]
    torch.manual_seed(0)
    model, x, y, t = torch.nn.Linear(5, 4), torch.randn(6, 5), torch.tensor([0, 1, 2, 3, 0, 1]), torch.randn(6, 4)
    Distil.apply(model(x), y, t, "fedntd", {"beta": 0.5, "tau": 2.0}).backward()
    found = model.weight.grad.clone()
    model.zero_grad()
    z = model(x)
    mask = ~torch.nn.functional.one_hot(y, 4).bool()
    rest = [(logits[mask].reshape(6, 3) / 2.0).log_softmax(1) for logits in (t, z)]
    ntd = (rest[0].exp() * (rest[0] - rest[1])).sum(1).mean()
    (torch.nn.functional.cross_entropy(z, y) + 0.5 * 4.0 * ntd).backward()
    assert torch.allclose(found, model.weight.grad, atol=1e-6)
