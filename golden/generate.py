#!/usr/bin/env python3
"""Golden vectors for every loss, server rule, metric and training trajectory, in float64 on the CPU.

    python3 golden/generate.py            write losses.json, rules.json and trajectories.json
    python3 golden/generate.py --check    recompute and compare them, and exit with 1 at the first difference

Inputs come from fixed seeds (draw.py), expectations from the formulas in docs/formulas.md, gradients of losses from
PyTorch's autograd. Needs torch and numpy.
"""

import argparse
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True

try:
    import torch

    import losses
    import rules
    import trajectories
except ImportError as missing:
    sys.exit(f"{missing}: pip install torch numpy")

FOLDER = Path(__file__).resolve().parent
FILES = {"losses.json": losses, "rules.json": rules, "trajectories.json": trajectories}


def plain(value):
    """Tensors as numbers and lists of numbers."""
    if torch.is_tensor(value):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def largest(value):
    """The largest magnitude of a float in nested lists; 0 if there are none."""
    if isinstance(value, list):
        return max(map(largest, value), default=0.0)
    return abs(value) if isinstance(value, float) else 0.0


def difference(old, new, slack=None):
    """Where and how two values differ, or None. Floats may differ by 1e-12 of the largest in their array, plus 1e-15;
    everything else, and the order of keys, must be equal."""
    if type(old) is not type(new):
        return f": {short(old)} in the file, {short(new)} computed"
    if isinstance(old, dict):
        if list(old) != list(new):
            return f": keys {list(old)} in the file, {list(new)} computed"
        found = ((f".{key}", difference(old[key], new[key])) for key in old)
        return next((where + text for where, text in found if text), None)
    slack = 1e-12 * largest(old) + 1e-15 if slack is None else slack
    if isinstance(old, list):
        found = ((label(i, new[i]), difference(*pair, slack)) for i, pair in enumerate(zip(old, new)))
        first = next((where + text for where, text in found if text), None)
        return first or (f": {len(old)} items in the file, {len(new)} computed" if len(old) != len(new) else None)
    same = abs(old - new) <= slack if isinstance(old, float) else old == new
    return None if same else f": {short(old)} in the file, {short(new)} computed"


def label(i, item):
    return f"[{i}] ({item['name']})" if isinstance(item, dict) else f"[{i}]"


def short(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    checking = parser.parse_args().check
    for name, module in FILES.items():
        path, new = FOLDER / name, plain(module.make())
        text = json.dumps(new)
        if not checking:
            path.write_text(text)
            continue
        committed = path.read_text()
        wrong = difference(json.loads(committed), new)
        if wrong:
            sys.exit(f"{name}: {wrong[1:].lstrip()}")
        print(f"{name}: the same{'' if text == committed else ' within rounding'}")


if __name__ == "__main__":
    main()
