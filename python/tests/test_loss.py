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
            return (method, logits, labels, teacher), {**params, "counts": np.array(inputs["label_counts"])}, False
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
    return None


CASES = json.loads(GOLDEN.read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case):
    call = called(case)
    if call is None:
        pytest.skip("it needs the weights of heads, or a table of the server")
    arguments, options, without = call
    value, *grads = fedelity.loss(*arguments, **options)
    plain, *zero = fedelity.loss("fedavg", *arguments[1:3])
    expected = case["expect"]
    grad = grads[-1] if case["method"] == "moon" else grads[0]
    if without:
        value -= plain
        grad = grad if case["method"] == "moon" else grad - zero[0]
    assert value == pytest.approx(expected["loss"], rel=2e-5, abs=2e-6)
    wanted = np.array(expected.get("grad_features", expected.get("grad_student_logits")))
    scale = max(np.abs(wanted).max(), 1e-3)
    assert np.abs(grad - wanted).max() <= 3e-5 * scale


def test_every_method_is_in_the_golden_cases():
    """All losses on logits and features have golden cases."""
    tested = {called(case)[0][0] for case in CASES if called(case)}
    assert tested == {"fedavg", "fedlsd", "fedntd", "fedcad", "fedssd", "fedgkd", "fedgkd-vote", "feddistill", "moon"}


TAUGHT = {
    "fedntd": {"tau": 2.0},
    "fedlsd": {"tau_squared": True},
    "fedgkd": {},
    "fedgkd-plus": {},
    "fedcad": {"received": {"class-alpha": array([0.1, 0.5, 0.9])}},
    "fedssd": {"received": {"credibility": array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0, 0.1, 0.9]])}},
    "fedgkd-vote": {"received": {"half-gammas": array([0.3])}},
    "feddistill": {"beta_extractor": 0.0, "beta_classifier": 0.0, "counts": np.array([5, 1, 0])},
    "fedavg": {},
    "fedprox": {},
}


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


def test_mistakes_are_named():
    z, y = np.zeros((4, 3), np.float32), np.array([0, 2, 1, 0])
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
        (("fedntd", z, y, z), {"bta": 1}, fedelity.ConfigError, "did you mean 'fedntd.beta'"),
        (("fedntd", z, y, z), {"tau": -1.0}, fedelity.ConfigError, "expected a finite number above 0"),
        (("fedmtd", z, y, z), {}, fedelity.ConfigError, "expected one of fedavg"),
        (("fedcad", z, y, z), {}, ValueError, "class-alpha"),
        (("fedcad", z, y, z), {"received": {"class-alpha": array([1])}}, ValueError, "class-alpha"),
        (("feddistill", z, y, z), {}, ValueError, "run the model's head"),
        (("moon", z, y), {"teacher_features": [z, z]}, TypeError, "give features="),
    ]:
        with pytest.raises(error, match=text):
            fedelity.loss(*arguments, **options)


def test_in_pytorch():
    """What the book shows."""
    torch = pytest.importorskip("torch")

    class Distil(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, labels, teacher_logits, method, hyper):
            arrays = (logits.detach().numpy(), labels.numpy(), teacher_logits.numpy())
            value, grad = fedelity.loss(method, *arrays, **hyper)
            ctx.save_for_backward(torch.from_numpy(grad))
            return logits.new_tensor(value)

        @staticmethod
        def backward(ctx, upstream):
            return upstream * ctx.saved_tensors[0], None, None, None, None

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
