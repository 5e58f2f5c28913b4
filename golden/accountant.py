#!/usr/bin/env python3
"""Privacy accounts by an independent program: Google's dp-accounting, the accountant of TensorFlow Privacy.

Two of its formulas give more than they should: with Poisson sampling it adds up the magnitudes of an alternating series at
fractional orders, or leaves the order out, and with samples of a fixed size it loses the digits of differences of high
order. `exact` has these from the formulas of the papers, computed with 25 and 120 digits (mpmath).

    python3 golden/accountant.py            write accountant.json
    python3 golden/accountant.py --check    recompute and compare it, and exit with 1 at the first difference

Needs dp-accounting (pip install dp-accounting). Noise is in multiples of the largest norm of an update. With sampling
of a fixed size, replacing a client moves the sum by up to twice that norm, so the program is given half the noise.
"""

import functools
import itertools
import json
import math
import sys
from importlib.metadata import version
from pathlib import Path

try:
    import dp_accounting
    import mpmath
    from absl import logging
    from dp_accounting import rdp
except ImportError as missing:
    sys.exit(f"{missing}: pip install dp-accounting")

FILE = Path(__file__).resolve().parent / "accountant.json"
ORDERS = [1.1, 1.5, 2, 3.7, 8, 20, 63, 128, 256]


@functools.cache
def integral(noise, rate, order):
    """The RDP of one round with Poisson sampling (Mironov, Talwar, Zhang 2019, section 3.1)."""
    z, q, a = mpmath.mpf(noise), mpmath.mpf(rate), mpmath.mpf(order)
    ratio = lambda x: 1 - q + q * mpmath.exp((2 * x - 1) / (2 * z * z))
    places = [k * z for k in range(-12, 1, 3)] + [a * k / 4 for k in range(1, 5)] + [a + k * z for k in range(3, 15, 3)]
    return float(mpmath.log(mpmath.quad(lambda x: mpmath.npdf(x, 0, z) * ratio(x) ** a, places)) / (a - 1))


@functools.cache
def difference(noise, order):
    """E[(p / q - 1)^order] for Gaussians p and q one sensitivity apart (Wang, Balle, Kasiviswanathan 2019)."""
    with mpmath.workdps(120):
        term = lambda i: (-1) ** (order - i) * mpmath.binomial(order, i) * moment(noise, i)
        return mpmath.fsum(term(i) for i in range(order + 1))


def moment(noise, i):
    return mpmath.exp(mpmath.mpf(i * (i - 1)) / (2 * mpmath.mpf(noise) ** 2))


def bound(noise, rate, order):
    """The bound on the RDP of one round with a sample of a fixed size."""
    with mpmath.workdps(120):
        total = mpmath.mpf(1)
        for j in range(2, order + 1):
            root = mpmath.sqrt(difference(noise, j // 2 * 2) * difference(noise, (j + 1) // 2 * 2))
            total += mpmath.mpf(rate) ** j * mpmath.binomial(order, j) * min(4 * root, 2 * moment(noise, j))
        return float(mpmath.log(total) / (order - 1))


def account(kind, noise, chosen, of, rounds, delta):
    """The RDP of one round at some orders, and epsilon after all rounds."""
    if kind == "poisson":
        relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
        event = dp_accounting.PoissonSampledDpEvent(chosen / of, dp_accounting.GaussianDpEvent(noise))
    else:
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        gaussian = dp_accounting.GaussianDpEvent(noise / 2)
        event = dp_accounting.SampledWithoutReplacementDpEvent(of, chosen, gaussian)
    some = rdp.RdpAccountant(ORDERS, relation)
    some.compose(event)
    all_orders = rdp.RdpAccountant(None, relation)
    all_orders.compose(event, rounds)
    case = {"kind": kind, "noise": noise, "chosen": chosen, "of": of, "rounds": rounds, "delta": delta}
    values = [float(value) if math.isfinite(value) else None for value in some._rdp]
    epsilon, order = all_orders.get_epsilon_and_optimal_order(delta)
    case |= {"rdp": values, "epsilon": float(epsilon), "order": float(order)}
    if kind == "poisson":
        case["exact"] = [[order, integral(noise, chosen / of, order)] for order in ORDERS if order % 1]
    else:
        case["exact"] = [[order, bound(noise / 2, chosen / of, order)] for order in ORDERS if order > 50]
    return case


def cases():
    poisson = itertools.product([0.6, 1.0, 1.3, 4.0, 20.0], [(1, 1000), (1, 240), (1, 20), (1, 2)], [1, 100, 10000])
    for noise, (chosen, of), rounds in poisson:
        yield account("poisson", noise, chosen, of, rounds, 1e-5)
    fixed = itertools.product([0.8, 2.0, 5.0, 16.0], [(1, 10000), (20, 1000), (10, 100), (10, 20)], [1, 30, 1000])
    for noise, (chosen, of), rounds in fixed:
        yield account("fixed-size", noise, chosen, of, rounds, 1e-5)
    # The tutorials and tests of TensorFlow Privacy: noise, batch, samples, epochs.
    settings = [(1.3, 250, 60000, 15), (1.1, 256, 60000, 60), (1.12, 256, 60000, 60), (1.3, 150, 60000, 15)]
    for noise, chosen, of, epochs in settings:
        yield account("poisson", noise, chosen, of, epochs * of // chosen, 1e-5)


def close(old, new):
    if isinstance(old, float):
        return abs(old - new) <= 1e-9 * abs(old)
    if isinstance(old, list):
        return len(old) == len(new) and all(map(close, old, new))
    return old == new


def main():
    logging.set_verbosity(logging.ERROR)
    mpmath.mp.dps = 25
    found = {"program": f"dp-accounting {version('dp-accounting')}", "orders": ORDERS, "cases": list(cases())}
    if "--check" not in sys.argv[1:]:
        lines = ",\n".join(json.dumps(case) for case in found.pop("cases"))
        head = json.dumps(found)[:-1]
        FILE.write_text(f'{head}, "cases": [\n{lines}\n]}}\n')
        return
    old = json.loads(FILE.read_text())
    for i, (a, b) in enumerate(zip(old["cases"], found["cases"], strict=True)):
        for key in a:
            if not close(a[key], b[key]):
                sys.exit(f"{FILE.name}: cases[{i}].{key}: {a[key]} in the file, {b[key]} computed")
    print(f"{FILE.name}: the same")


if __name__ == "__main__":
    main()
