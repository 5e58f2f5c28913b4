"""Six steps of whole models under a method: the cases of trajectories.json.

A model is a forward function from its tensors and a batch to (features, logits), and the shapes of its tensors.
"""

import math

import torch
import torch.nn.functional as F

from draw import uniform, whole
from losses import ce, fedcad, feddistill, fedgkd, fedlsd, fedntd, fedssd, moon


def simple_cnn_tensors(channels, side, classes, projection=False):
    flat = 16 * (((side - 4) // 2 - 4) // 2) ** 2
    layers = {"c1": (6, channels, 5, 5), "c2": (16, 6, 5, 5), "f1": (120, flat), "f2": (84, 120)}
    layers |= {"p1": (84, 84), "p2": (256, 84)} if projection else {}
    return with_biases(layers | {"out": (classes, 256 if projection else 84)})


def with_biases(layers):
    both = lambda name, shape: {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {key: shape for name, full in layers.items() for key, shape in both(name, full).items()}


def simple_cnn(w, x):
    """Two 5x5 convolutions with pooling, three dense layers; with p1 and p2 MOON's projection head before the last."""
    for layer in ("c1", "c2"):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"])), 2)
    x = x.flatten(1)
    for layer in ("f1", "f2"):
        x = F.relu(dense(w, layer, x))
    if "p1.weight" in w:
        x = dense(w, "p2", F.relu(dense(w, "p1", x)))
    return x, dense(w, "out", x)


def dense(w, layer, x):
    return F.linear(x, w[f"{layer}.weight"], w[f"{layer}.bias"])


def ntd_cnn_tensors(channels, side, classes):
    convolutions = {"c1": (32, channels, 5, 5), "c2": (64, 32, 5, 5)}
    return with_biases(convolutions | {"f1": (512, 64 * (side // 4) ** 2), "out": (classes, 512)})


def ntd_cnn(w, x):
    """Two padded 5x5 convolutions with pooling, two dense layers."""
    for layer in ("c1", "c2"):
        x = F.max_pool2d(F.relu(F.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"], padding=2)), 2)
    x = F.relu(dense(w, "f1", x.flatten(1)))
    return x, dense(w, "out", x)


def resnet8_tensors(channels, side, classes):
    norm = lambda name, width: {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    tensors = {"c.weight": (16, channels, 3, 3)} | norm("n", 16)
    before = 16
    for block, width in (("b1", 16), ("b2", 32), ("b3", 64)):
        tensors |= {f"{block}.c1.weight": (width, before, 3, 3)} | norm(f"{block}.n1", width)
        tensors |= {f"{block}.c2.weight": (width, width, 3, 3)} | norm(f"{block}.n2", width)
        if width != before:
            tensors |= {f"{block}.cs.weight": (width, before, 1, 1)} | norm(f"{block}.ns", width)
        before = width
    return tensors | {"out.weight": (classes, 64), "out.bias": (classes,)}


def resnet8(w, x):
    """A 3x3 convolution, three basic blocks (strides 1, 2, 2), the mean over pixels, a dense layer. Group normalisation
    with 16 channels per group."""

    def conv_norm(conv, norm, x, stride=1):
        kernel = w[f"{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        return F.group_norm(x, x.shape[1] // 16, w[f"{norm}.weight"], w[f"{norm}.bias"])

    x = F.relu(conv_norm("c", "n", x))
    for block, stride in (("b1", 1), ("b2", 2), ("b3", 2)):
        inner = F.relu(conv_norm(f"{block}.c1", f"{block}.n1", x, stride))
        inner = conv_norm(f"{block}.c2", f"{block}.n2", inner)
        short = conv_norm(f"{block}.cs", f"{block}.ns", x, stride) if f"{block}.cs.weight" in w else x
        x = F.relu(inner + short)
    x = x.mean((2, 3))
    return x, dense(w, "out", x)


MODELS = {  # forward, tensors, first seed, batch, channels, side
    "simple-cnn": (simple_cnn, simple_cnn_tensors, 900000, 8, 3, 32),
    "simple-cnn-projection": (simple_cnn, lambda *size: simple_cnn_tensors(*size, projection=True), 900000, 8, 3, 32),
    "simple-cnn-28": (simple_cnn, simple_cnn_tensors, 903000, 8, 1, 28),
    "ntd-cnn": (ntd_cnn, ntd_cnn_tensors, 901000, 4, 3, 32),
    "resnet8-gn": (resnet8, resnet8_tensors, 902000, 4, 3, 32),
}
NTD, GKD = {"beta": 1.0, "tau": 1.0}, {"gamma": 0.2}
TRAJECTORIES = [
    ("simple-cnn", "fedavg", {}),
    ("simple-cnn", "fedprox", {"mu": 0.1}),
    ("simple-cnn", "fedntd", NTD),
    ("simple-cnn", "fedlsd", {"alpha": 0.3, "tau": 2.0}),
    ("simple-cnn", "fedcad", {"tau": 2.0}),
    ("simple-cnn", "fedssd", {"m_max": 0.5}),
    ("simple-cnn", "fedgkd", GKD),
    ("simple-cnn-projection", "moon", {"mu": 5.0, "tau": 0.5}),
    ("simple-cnn", "feddistill-gd", {"beta_logits": 1.0, "beta_extractor": 0.3, "beta_classifier": 0.3}),
    ("simple-cnn-28", "fedntd", NTD),
    ("ntd-cnn", "fedavg", {}),
    ("ntd-cnn", "fedntd", NTD),
    ("resnet8-gn", "fedavg", {}),
    ("resnet8-gn", "fedgkd", GKD),
]


def drawn_weights(tensors, seed):
    """Tensor i by seed + i, uniform within 1/sqrt(fan_in); normalisation scales are 1 and shifts 0."""
    weights = {}
    for i, (name, shape) in enumerate(tensors.items()):
        if name.split(".")[-2].startswith("n"):
            weights[name] = torch.full(shape, 1.0 if name.endswith("weight") else 0.0)
        else:
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else 50
            bound = 1.0 / math.sqrt(fan_in)
            weights[name] = uniform(seed + i, *shape, low=-bound, high=bound)
    return weights


def trajectory(model, method, params):
    """Six steps of SGD on one batch, from weights other than the global ones."""
    forward, tensors_of, seed, batch, channels, side = MODELS[model]
    classes = 10
    setup = {
        "batch": batch,
        "classes": classes,
        "channels": channels,
        "side": side,
        "steps": 6,
        "lr": 0.02,
        "momentum": 0.9,
        "weight_decay": 1e-05,
        "seed_student": seed,
        "seed_global": seed + 100,
        "seed_previous": seed + 200,
        "seed_inputs": seed + 300,
        "seed_labels": seed + 301,
        "label_counts": [5 * (3 - c % 4) for c in range(classes)],
        "credibility": "0.8 on the diagonal plus 0.2/classes everywhere",
        "class_alpha": [0.1 + 0.05 * (c % 5) for c in range(classes)],
    }
    tensors = tensors_of(channels, side, classes)
    w = {name: tensor.requires_grad_() for name, tensor in drawn_weights(tensors, setup["seed_student"]).items()}
    frozen = drawn_weights(tensors, setup["seed_global"])
    x, y = uniform(setup["seed_inputs"], batch, channels, side, side), whole(setup["seed_labels"], batch, classes)
    previous_features, _ = forward(drawn_weights(tensors, setup["seed_previous"]), x)
    frozen_features, t = forward(frozen, x)
    credibility = 0.8 * torch.eye(classes) + 0.2 / classes
    counts, class_alpha = torch.tensor(setup["label_counts"]), torch.tensor(setup["class_alpha"])

    def objective():
        features, z = forward(w, x)
        if method == "fedavg":
            return ce(z, y)
        if method == "fedprox":
            return ce(z, y) + params["mu"] / 2 * sum(((w[name] - frozen[name]) ** 2).sum() for name in w)
        if method == "fedcad":
            return fedcad(z, t, y, class_alpha, **params)
        if method == "fedssd":
            return fedssd(z, t, y, credibility, **params)
        if method == "moon":
            return ce(z, y) + moon(features, frozen_features, previous_features, **params)
        if method == "feddistill-gd":
            heads = (lambda f: dense(w, "out", f)), (lambda f: dense(frozen, "out", f))
            return feddistill(features, frozen_features, *heads, y, counts, **params)
        return {"fedntd": fedntd, "fedlsd": fedlsd, "fedgkd": fedgkd}[method](z, t, y, **params)

    optimizer = torch.optim.SGD(w.values(), setup["lr"], setup["momentum"], weight_decay=setup["weight_decay"])
    values = []
    for _ in range(setup["steps"]):
        optimizer.zero_grad()
        loss = objective()
        loss.backward()
        optimizer.step()
        values.append(loss)
    expect = {
        "losses": values,
        "tensor_sums": [tensor.sum() for tensor in w.values()],
        "tensor_norms": [tensor.norm() for tensor in w.values()],
        "logits_first_two": forward(w, x)[1][:2],
    }
    head = {"name": f"{model}-{method}", "model": model, "method": method, "params": params, "setup": setup}
    return head | {"tensors": [[name, list(shape)] for name, shape in tensors.items()], "expect": expect}


def make():
    about = (
        "Parameters: tensor i (in the order listed) is uniform in [-b, b), b = 1/sqrt(fan_in), drawn with splitmix64 "
        "seeded by seed_* + i; fan_in is the number of elements of one output slice, and 50 for vectors (biases); "
        "normalisation scales are 1 and shifts 0. Inputs are uniform in [-1, 1) by seed_inputs, labels are splitmix64 "
        "by seed_labels modulo classes. The same batch is used at every step; the optimiser is SGD with momentum and "
        "weight decay added to the gradient (torch semantics)."
    )
    return {"about": about, "cases": [trajectory(*case) for case in TRAJECTORIES]}
