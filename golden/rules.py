"""Server rules and metrics in plain Python, and the cases of rules.json."""

import math

import torch

from draw import uniform, whole


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def mean(numbers):
    return sum(numbers) / len(numbers)


def share(sizes):
    return [size / sum(sizes) for size in sizes]


def fedcad_class_alpha(probabilities, labels, beta, gamma, classes):
    """alpha_y = beta + (gamma - beta) E_{x|y}[p_y], which is FedCAD, eq. 6; beta for a class without samples."""
    of_class = lambda c: torch.tensor([p[c] for p, label in zip(probabilities, labels) if label == c] or [0.0])
    return {"alpha": [beta + (gamma - beta) * of_class(c).mean().item() for c in range(classes)]}


def fedssd_credibility(predictions, labels, classes):
    """A_jk: the share of the samples of class j that are taken for k, 0 if there are none. FedSSD, eq. 2.
    M_class[k] = A_kk (1 - max_{j != k} A_jk)"""
    pairs, ks = list(zip(labels, predictions)), range(classes)
    a = [[pairs.count((j, k)) / max(labels.count(j), 1) for k in ks] for j in ks]
    weights = [a[k][k] * (1 - max(a[j][k] for j in ks if j != k)) for k in ks]
    return {"credibility": a, "class_weight": weights}


def fedgkd_vote_half_gammas(validation_losses, lambda_):
    """gamma_m/2 = lambda softmax_m(-L_m / beta), beta = 1/M. FedGKD-VOTE, unnumbered."""
    powers = [math.exp(-loss * len(validation_losses)) for loss in validation_losses]
    return {"half_gammas": [lambda_ * power / sum(powers) for power in powers]}


def weighted_average(weights, vectors):
    """w = sum_i n_i w_i / n. FedAvg, Algorithm 1."""
    return {"average": [dot(weights, column) / sum(weights) for column in zip(*vectors)]}


def effective_steps(steps, rho):
    """a = [tau - rho (1 - rho^tau) / (1 - rho)] / (1 - rho)."""
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


def fednova(global_, locals, sizes, local_steps, momentum):
    """w^{t+1} = w^t - (sum_i p_i a_i) sum_i p_i (w^t - w_i) / a_i. FedNova."""
    p, a = share(sizes), [effective_steps(steps, momentum) for steps in local_steps]
    way = lambda w, column: dot(p, [(w - local) / steps for local, steps in zip(column, a)])
    new = [w - dot(p, a) * way(w, column) for w, column in zip(global_, zip(*locals))]
    return {"effective_steps": a, "global": new}


def scaffold_client_control(global_, local, server_control, client_control, lr, steps, momentum):
    """c_i+ = c_i - c + (w^t - y) / (a eta), a FedNova's effective steps. SCAFFOLD, Algorithm 1, option II."""
    way = effective_steps(steps, momentum) * lr
    rows = zip(global_, local, server_control, client_control)
    return {"client_control": [c_i - c + (w - y) / way for w, y, c, c_i in rows]}


def scaffold_server_control(server_control, new, old, clients_total):
    """c + |S|/N mean_{i in S} (c_i+ - c_i). SCAFFOLD, Algorithm 1."""
    part = len(new) / clients_total
    moved = [sum(n - o for n, o in zip(*pair)) for pair in zip(zip(*new), zip(*old))]
    return {"server_control": [c + part * move / len(new) for c, move in zip(server_control, moved)]}


def fedprox(weights, global_, mu):
    """mu/2 ||w - w^t||^2, its gradient mu (w - w^t). FedProx, Algorithm 2."""
    away = [w - g for w, g in zip(weights, global_)]
    return {"loss": mu / 2 * dot(away, away), "gradient": [mu * d for d in away]}


def fedcurv_penalty(weights, others_weights, others_fisher, lambda_):
    """lambda sum_{j != i} (w - w_j)^T diag(F_j) (w - w_j), its gradient 2 lambda sum_j F_j (w - w_j). FedCurv."""
    away = [[w - v for w, v in zip(weights, other)] for other in others_weights]
    loss = sum(dot(f, [d**2 for d in row]) for f, row in zip(others_fisher, away))
    pulls = [[f_k * d for f_k, d in zip(f, row)] for f, row in zip(others_fisher, away)]
    return {"loss": lambda_ * loss, "gradient": [2 * lambda_ * sum(column) for column in zip(*pulls)]}


def forgetting(class_accuracy_by_round):
    """F = 1/C sum_c max_{t < T} (A_c^t - A_c^T). FedNTD, eq. 5."""
    return {"forgetting": mean([max(before) - last for *before, last in zip(*class_accuracy_by_round)])}


def in_out_local(label_counts, class_accuracy):
    """sum_c p_c A_c and sum_c p~_c A_c, p the client's share of each label, p~_c = (1 - p_c) / (C - 1).
    FedNTD, eqs. 6 and 7."""
    inside = share(label_counts)
    outside = [(1 - p) / (len(inside) - 1) for p in inside]
    accuracy = {"in_accuracy": dot(inside, class_accuracy), "out_accuracy": dot(outside, class_accuracy)}
    return {"in_local": inside, "out_local": outside} | accuracy


def gradient_diversity(gradients):
    """1/K sum_k ||g_k||^2 / ||1/K sum_k g_k||^2. FedNTD, eq. 8."""
    middle = [mean(column) for column in zip(*gradients)]
    return {"diversity": mean([dot(g, g) for g in gradients]) / dot(middle, middle)}


def class_accuracy_cosine(a, b):
    """<a, b> / (||a|| ||b||). FedNTD, Figure 2."""
    return {"cosine": dot(a, b) / math.sqrt(dot(a, a)) / math.sqrt(dot(b, b))}


def rounds_to_target(accuracy_by_round, target):
    """The first round, counted from 1, whose accuracy is at least the target."""
    return {"round": next((t for t, accuracy in enumerate(accuracy_by_round, 1) if accuracy >= target), None)}


def cases():
    rows = lambda seed, count, width, low=-1.0: torch.stack([uniform(seed + i, width, low=low) for i in range(count)])
    labels = whole(50000, 60, 5)
    probabilities = torch.softmax(uniform(50001, 60, 5, low=-3.0, high=3.0), 1)
    global_, control, own = (uniform(seed, 6) for seed in (50020, 50021, 50022))
    locals, sizes = rows(50010, 3, 6), [30, 5, 65]
    counts = whole(50070, 5, 50)
    counts[0] = 0
    by_round = rows(50060, 6, 5, low=0.0)

    asked = {"probabilities": probabilities, "labels": labels, "beta": 0.1, "gamma": 0.6, "classes": 5}
    yield fedcad_class_alpha, asked
    yield fedssd_credibility, {"predictions": probabilities.argmax(1), "labels": labels, "classes": 5}
    yield fedgkd_vote_half_gammas, {"validation_losses": uniform(50002, 4, low=0.3, high=2.0), "lambda": 0.1}
    yield weighted_average, {"weights": sizes, "vectors": locals}
    sent = {"global": global_, "locals": locals, "sizes": sizes}
    yield fednova, sent | {"local_steps": [7, 3, 20], "momentum": 0.9}
    client = {"global": global_, "local": locals[0], "server_control": control, "client_control": own}
    for momentum in (0.0, 0.9):
        yield scaffold_client_control, client | {"lr": 0.05, "steps": 12, "momentum": momentum}
    controls = {"server_control": control, "new": rows(50030, 3, 6), "old": rows(50040, 3, 6)}
    yield scaffold_server_control, controls | {"clients_total": 10}
    yield fedprox, {"weights": locals[0], "global": global_, "mu": 0.01}
    others = {"others_weights": locals[1:], "others_fisher": rows(50051, 2, 6, low=0.0)}
    yield fedcurv_penalty, {"weights": locals[0]} | others | {"lambda": 0.5}
    yield forgetting, {"class_accuracy_by_round": by_round}
    yield in_out_local, {"label_counts": counts, "class_accuracy": by_round[0]}
    yield gradient_diversity, {"gradients": rows(50080, 4, 6)}
    yield class_accuracy_cosine, {"a": by_round[0], "b": by_round[1]}
    yield rounds_to_target, {"accuracy_by_round": uniform(50090, 20, low=0.1, high=0.7), "target": 0.6}


def make():
    made = []
    for rule, inputs in cases():
        inputs = {key: value.tolist() if torch.is_tensor(value) else value for key, value in inputs.items()}
        keywords = {f"{key}_" if key in ("global", "lambda") else key: value for key, value in inputs.items()}
        made.append({"name": rule.__name__.replace("_", "-"), "inputs": inputs, "expect": rule(**keywords)})
    return {"rules": made}
