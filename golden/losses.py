"""Every loss on logits or features, and the cases of losses.json.

z are the student's logits [batch, classes], t the teacher's, y the labels. All losses are means over the batch.
"""

import math

import torch
import torch.nn.functional as F

from draw import uniform, whole


def ce(z, y):
    """CE = -log p_y, p = softmax(z). FedAvg, Algorithm 1."""
    return F.cross_entropy(z, y)


def kl(t, z, tau=1.0):
    """KL(q || p) = sum_k q_k log(q_k / p_k) of each sample, q = softmax(t / tau), p = softmax(z / tau)."""
    return (F.softmax(t / tau, 1) * (F.log_softmax(t / tau, 1) - F.log_softmax(z / tau, 1))).sum(1)


def fedlsd(z, t, y, alpha, tau, tau_squared=False):
    """(1 - alpha) CE + alpha KL_tau. FedCAD, eq. 4; with a factor tau^2 on KL: FedNTD, eq. 3."""
    factor = tau**2 if tau_squared else 1.0
    return (1 - alpha) * ce(z, y) + alpha * factor * kl(t, z, tau).mean()


def fedcad(z, t, y, class_alpha, tau, tau_squared=False):
    """mean_i (1 - alpha_y) CE_i + alpha_y KL_tau,i. FedCAD, eq. 5; tau^2 as in FedLSD."""
    factor, alpha = tau**2 if tau_squared else 1.0, class_alpha[y]
    return ((1 - alpha) * F.cross_entropy(z, y, reduction="none") + alpha * factor * kl(t, z, tau)).mean()


def fedntd(z, t, y, beta, tau):
    """CE + beta tau^2 KL_tau over the classes other than y, both softmaxes over those alone. FedNTD, eqs. 10 and 11."""
    not_true = ~F.one_hot(y, z.shape[1]).bool()
    t, z_rest = (logits[not_true].reshape(len(y), -1) for logits in (t, z))
    return ce(z, y) + beta * tau**2 * kl(t, z_rest, tau).mean()


def fedssd(z, t, y, credibility, m_max, weight="linear"):
    """CE + mean_i sum_k M_k (z_k - t_k)^2; "squared" has M_k^2, which is FedSSD, eq. 3.
    M_k = M_max [M_class[k] (1 - sqrt(1 - q_y)) - 0.1]^+, q = softmax(t), FedSSD, eq. 4
    M_class[k] = A_kk (1 - max_{j != k} A_jk), A the credibility matrix"""
    diagonal = torch.diag(credibility)
    m_class = diagonal * (1 - (credibility - torch.diag(diagonal)).max(0).values)
    q_y = F.softmax(t, 1).gather(1, y[:, None])
    m = m_max * F.relu(m_class * (1 - (1 - q_y).sqrt()) - 0.1)
    return ce(z, y) + ((m if weight == "linear" else m**2) * (z - t) ** 2).sum(1).mean()


def fedgkd(z, t, y, gamma):
    """CE + gamma/2 KL. FedGKD, eq. 4."""
    return ce(z, y) + gamma / 2 * kl(t, z).mean()


def fedgkd_mse(z, t, y, alpha):
    """CE + alpha mean_i sum_k (z_k - t_k)^2. FedGKD, Table 9, but summed over classes."""
    return ce(z, y) + alpha * ((z - t) ** 2).sum(1).mean()


def fedgkd_vote(z, teachers, y, half_gammas):
    """CE + sum_m gamma_m/2 KL(teacher m || student). FedGKD, eq. 5."""
    return ce(z, y) + sum(half * kl(t, z).mean() for half, t in zip(half_gammas, teachers))


def fedelity(z, t, y, label_counts, prior, teacher):
    """CE(z + prior log pi) + teacher lambda KL, lambda = 1 - H(pi) / log K, pi_c = (n_c + 1/K) / (n + 1)."""
    classes = z.shape[1]
    pi = (label_counts + 1 / classes) / (label_counts.sum() + 1)
    share = 1 + (pi * pi.log()).sum() / math.log(classes)
    return ce(z + prior * pi.log(), y) + teacher * share * kl(t, z).mean()


def group_distillation(z, t, y, label_counts, alpha_true=0.0, alpha_rich=0.3, alpha_few=1.0):
    """GD = alpha_t TC + alpha_r RC + alpha_f FC. FedDistill, eqs. 3 to 6.
    TC = q_y log(q_y / p_y) + q_nt log(q_nt / p_nt), p_nt = 1 - p_y
    RC = sum_{i rich} q~_i log(q~_i / p~_i) + q~_few log(q~_few / p~_few), p~_i = p_i / p_nt, p~_few their sum
    FC = sum_{i few} q~_i log(q~_i / p~_i) + q~_rich log(q~_rich / p~_rich)
    q is the teacher. Rich classes have more than 1/classes of the samples; y is in no group, an empty group adds 0.
    An alpha of "pnt" is q_nt of the sample."""
    rich = label_counts / label_counts.sum() > 1 / len(label_counts)
    rows = []
    for log_q, log_p, true in zip(F.log_softmax(t, 1), F.log_softmax(z, 1), y):
        others = [k for k in range(len(rich)) if k != true]
        groups = [k for k in others if rich[k]], [k for k in others if not rich[k]]
        nt_q, nt_p = log_q[others].logsumexp(0), log_p[others].logsumexp(0)

        def part(singles, together):
            terms = [term(log_q[k] - nt_q, log_p[k] - nt_p) for k in singles]
            if together:
                terms.append(term(log_q[together].logsumexp(0) - nt_q, log_p[together].logsumexp(0) - nt_p))
            return sum(terms)

        parts = term(log_q[true], log_p[true]) + term(nt_q, nt_p), part(*groups), part(*groups[::-1])
        alphas = (nt_q.exp() if alpha == "pnt" else alpha for alpha in (alpha_true, alpha_rich, alpha_few))
        rows.append(sum(alpha * part for alpha, part in zip(alphas, parts)))
    return torch.stack(rows).mean()


def term(log_q, log_p):
    """q log(q / p)."""
    return log_q.exp() * (log_q - log_p)


def feddistill(
    local, frozen, head, frozen_head, y, label_counts, beta_logits, beta_extractor, beta_classifier, **alphas
):
    """CE(y_ll) + beta_L GD(y_gg || y_ll) + beta_E CE(y_lg) + beta_FC GD(y_gg || y_gl). FedDistill, eqs. 7 to 10.
    y_ab: head b on features a; l is the local one, g the frozen global one."""
    ll, gg, lg, gl = head(local), frozen_head(frozen), frozen_head(local), head(frozen)
    distil = lambda z: group_distillation(z, gg, y, label_counts, **alphas)
    return ce(ll, y) + beta_logits * distil(ll) + beta_extractor * ce(lg, y) + beta_classifier * distil(gl)


def feddistill_plus(z, y, table, has_class, coefficient):
    """CE + c mean_i KL(softmax(G[y_i]) || p_i), 0 for a sample whose class has no row in the table G. FedDistill+."""
    return ce(z, y) + coefficient * (has_class[y] * kl(table[y], z)).mean()


def moon(features, frozen, previous, mu, tau):
    """mu mean_i -log(e^(s_glob / tau) / (e^(s_glob / tau) + e^(s_prev / tau))). MOON, Algorithm 1, without CE.
    s is the cosine similarity to the global and to the last local features."""
    similar = [F.cosine_similarity(features, other, dim=1) / tau for other in (frozen, previous)]
    return mu * F.cross_entropy(torch.stack(similar, 1), torch.zeros(len(features), dtype=torch.int64))


SETTINGS = [  # seed, classes, batch, largest logit, features
    (1100, 3, 4, 1.0, 6),
    (1200, 10, 5, 3.0, 6),
    (1300, 100, 2, 4.0, 16),
    (1400, 2, 1, 2.0, 6),
    (1500, 10, 3, 40.0, 6),
]


def draw(seed, classes, batch, largest, width):
    """All that any loss reads in one setting."""
    logits = lambda at, rows: uniform(seed + at, rows, classes, low=-largest, high=largest)
    labels = whole(seed + 2, batch, classes)
    credibility = uniform(seed + 4, classes, classes, low=0.0, high=0.3)
    credibility += torch.diag(uniform(seed + 5, classes, low=0.5, high=4.0))
    counts = whole(seed + 8, classes, 40)
    counts[(torch.arange(classes) + seed) % 3 == 0] = 0
    return {
        "student_logits": logits(0, batch),
        "teacher_logits": logits(1, batch),
        "sure_teacher_logits": logits(1, batch) + 2 * largest * F.one_hot(labels, classes),
        "teachers_logits": torch.stack([logits(at, batch) for at in (1, 6, 7)]),
        "labels": labels,
        "class_alpha": uniform(seed + 3, classes, low=0.0, high=0.7),
        "credibility": credibility / credibility.sum(1, keepdim=True),
        "label_counts": counts + torch.bincount(labels, minlength=classes),
        "logit_table": logits(9, classes),
        "table_has_class": torch.arange(classes) % 4 != 0,
        "features": uniform(seed + 10, batch, width),
        "global_features": uniform(seed + 11, batch, width),
        "previous_features": uniform(seed + 12, batch, width),
        "head_weight": uniform(seed + 13, classes, width),
        "head_bias": uniform(seed + 14, classes),
        "global_head_weight": uniform(seed + 15, classes, width),
        "global_head_bias": uniform(seed + 16, classes),
    }


def feddistill_on_heads(features, frozen, y, label_counts, w, b, frozen_w, frozen_b, **params):
    head, frozen_head = lambda x: F.linear(x, w, b), lambda x: F.linear(x, frozen_w, frozen_b)
    return feddistill(features, frozen, head, frozen_head, y, label_counts, **params)


TAUGHT = ["student_logits", "teacher_logits", "labels"]
HEADS = ["head_weight", "head_bias", "global_head_weight", "global_head_bias"]
LOSSES = {  # the loss of each method and its inputs, in order
    "ce": (ce, ["student_logits", "labels"]),
    "fedlsd": (fedlsd, TAUGHT),
    "fedntd": (fedntd, TAUGHT),
    "fedcad": (fedcad, [*TAUGHT, "class_alpha"]),
    "fedssd": (fedssd, [*TAUGHT, "credibility"]),
    "fedgkd": (fedgkd, TAUGHT),
    "fedgkd-mse": (fedgkd_mse, TAUGHT),
    "fedgkd-vote": (fedgkd_vote, ["student_logits", "teachers_logits", "labels"]),
    "fedelity": (fedelity, [*TAUGHT, "label_counts"]),
    "group-distillation": (group_distillation, [*TAUGHT, "label_counts"]),
    "feddistill-plus": (feddistill_plus, ["student_logits", "labels", "logit_table", "table_has_class"]),
    "moon": (moon, ["features", "global_features", "previous_features"]),
    "feddistill-gd": (feddistill_on_heads, ["features", "global_features", "labels", "label_counts", *HEADS]),
}
TRAINED = ["student_logits", "features", "head_weight", "head_bias"]


def variants():
    """(method, hyper-parameters, inputs drawn under another name) of the cases of one setting."""
    yield "ce", {}, {}
    for tau in (1.0, 2.0, 3.0):
        for tau_squared in (False, True):
            yield "fedlsd", {"alpha": 0.3, "tau": tau, "tau_squared": tau_squared}, {}
        yield "fedntd", {"beta": 1.0, "tau": tau}, {}
        yield "fedcad", {"tau": tau, "tau_squared": False}, {}
    yield "fedntd", {"beta": 0.3, "tau": 1.0}, {}
    for weight in ("linear", "squared"):
        for m_max in (0.01, 0.5, 5.0):
            yield "fedssd", {"m_max": m_max, "weight": weight}, {}
    yield "fedssd", {"m_max": 0.5, "weight": "linear"}, {"teacher_logits": "sure_teacher_logits"}
    yield "fedgkd", {"gamma": 0.2}, {}
    yield "fedgkd-mse", {"alpha": 0.1}, {}
    yield "fedgkd-vote", {"half_gammas": [0.05, 0.03, 0.02]}, {}
    for prior, teacher in ((1.0, 1.0), (0.5, 0.3), (0.0, 1.0), (1.0, 0.0)):
        yield "fedelity", {"prior": prior, "teacher": teacher}, {}
    alphas = lambda true, rich, few: {"alpha_true": true, "alpha_rich": rich, "alpha_few": few}
    for three in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.0, 0.3, 1.0), (1.0, "pnt", "pnt")):
        yield "group-distillation", alphas(*three), {}
    yield "feddistill-plus", {"coefficient": 0.1}, {}
    yield "moon", {"mu": 5.0, "tau": 0.5}, {}
    betas = {"beta_logits": 1.0, "beta_extractor": 0.3, "beta_classifier": 0.3}
    yield "feddistill-gd", alphas(0.0, 0.3, 1.0) | betas, {}


def cases():
    for setting in SETTINGS:
        drawn = draw(*setting)
        for method, params, renamed in variants():
            loss, names = LOSSES[method]
            inputs = {name: drawn[renamed.get(name, name)].clone() for name in names}
            trained = {name: inputs[name].requires_grad_() for name in names if name in TRAINED}
            value = loss(*inputs.values(), **params)
            gradients = torch.autograd.grad(value, list(trained.values()))
            expect = {"loss": value} | {f"grad_{name}": grad for name, grad in zip(trained, gradients)}
            yield {"method": method, "params": params, "inputs": inputs, "expect": expect}


def make():
    about = (
        "Losses are means over the batch, in float64. KL is KL(teacher || student) summed over classes. fedlsd and "
        "fedcad report the distillation part as a KL value (the soft cross-entropy has the same gradient)."
    )
    return {"about": about, "cases": [{"name": f"{case['method']}-{i}"} | case for i, case in enumerate(cases())]}
