"""Data as arrays."""

import fedelity
import numpy as np
import pytest


def table(n=300, classes=3, sites=4):
    rng = np.random.default_rng(1)
    y = rng.integers(0, classes, n)
    x = rng.normal(3 * y[:, None], 1.0, (n, 5)) * [1, 10, 100, 1, 1] + 7
    return x, y, rng.integers(0, sites, n)


MLP = {"rounds": 3, "model": {"name": "mlp"}, "clients": {"per-round": 2}, "evaluation": {"metrics": "fast"}}


def test_arrays_are_the_same_as_a_file(tmp_path):
    """The same numbers from a CSV file and from arrays give the same weights."""
    x, y, client = table()
    x = x.astype(np.float32)
    names = ["a", "b", "c"]
    halves = {"train": slice(0, 200), "test": slice(200, 300)}
    for part, rows in halves.items():
        lines = ["site,label,p,q,r,s,t"]
        lines += [
            f"s{site},{names[label]}," + ",".join(str(value) for value in row)
            for site, label, row in zip(client[rows], y[rows], x[rows])
        ]
        (tmp_path / f"{part}.csv").write_text("\n".join(lines) + "\n")
    of_file = fedelity.run(
        {
            **MLP,
            "data": {"name": "csv", "train": "train.csv", "test": "test.csv", "label": "label", "key": "site"},
            "partition": {"kind": "natural"},
        },
        "file",
    )
    cut = lambda array: (array[:200], array[200:])
    (x, x_test), (y, y_test), (client, client_test) = cut(x), cut(y), cut(client)
    data = fedelity.Data(
        x, y, client=[f"s{one}" for one in client], x_test=x_test, y_test=y_test,
        client_test=[f"s{one}" for one in client_test], classes=names,
    )
    of_arrays = fedelity.run(MLP, "arrays", data=data)
    a, b = of_file.runs[0], of_arrays.runs[0]
    assert a.header["client-names"] == b.header["client-names"] == list(dict.fromkeys(f"s{one}" for one in client))
    for name, weights in a.weights().items():
        assert np.abs(weights - b.weights()[name]).max() < 1e-5
    assert b.config["data"]["name"] == "arrays" and b.curve()[-1] > 0.8


def test_images_and_any_partition():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 120)
    x = (rng.integers(0, 60, (120, 8, 8)) + 150 * y[:, None, None]).astype(np.uint8)
    config = {
        "rounds": 2, "model": {"name": "mlp"}, "clients": {"per-round": 3},
        "partition": {"kind": "dirichlet", "alpha": 1.0, "clients": 4},
    }
    result = fedelity.run(config, "a", data=fedelity.Data(x, np.array(["dark", "light"])[y]))
    assert result.runs[0].classes == ["dark", "light"] and result.curve()[0, -1] > 0.9
    colour = np.repeat(x[:, None], 3, axis=1)
    assert fedelity.run(config, "b", data=fedelity.Data(colour, y, test_fraction=0.5)).runs[0].header["clients"] == 4
    # Arrays are given again to go on.
    with pytest.raises(fedelity.DataError, match="has to give them again"):
        fedelity.resume("a", rounds=3)
    assert len(fedelity.resume("a", rounds=3, data=fedelity.Data(x, np.array(["dark", "light"])[y])).runs[0].records) == 3
    with pytest.raises(fedelity.Error, match="cannot be resumed"):
        fedelity.resume("a", rounds=4, data=fedelity.Data(x[::-1], np.array(["dark", "light"])[y]))


def test_the_order_in_memory_does_not_matter():
    x, y, _ = table()
    found = [
        fedelity.run({**MLP, "partition": {"kind": "iid", "clients": 3}}, name, data=fedelity.Data(array, y)).runs[0]
        for name, array in [("c", x), ("fortran", np.asfortranarray(x)), ("strided", np.repeat(x, 2, axis=0)[::2])]
    ]
    assert len({run.records[-1]["weights"]["sha256"] for run in found}) == 1


def test_texts():
    texts = ["good fine great", "bad poor awful"] * 30
    config = {"rounds": 2, "model": {"name": "lstm"}, "partition": {"kind": "iid", "clients": 3}, "clients": {"per-round": 3}}
    result = fedelity.run(config, "a", data=fedelity.Data(texts, ["yes", "no"] * 30))
    assert result.runs[0].classes == ["no", "yes"]


def test_mistakes_are_named():
    x, y, client = table()
    images = np.zeros((300, 4, 5, 3), np.uint8)
    bad = x.copy()
    bad[7, 2] = np.nan
    for make, error, text in [
        (lambda: fedelity.Data(x[:-1], y), ValueError, "x has 299 samples, but y has 300 labels"),
        (lambda: fedelity.Data(x, y, client=client[:-1]), ValueError, "client has 299 entries for 300 samples"),
        (lambda: fedelity.Data(images, y), ValueError, r"x.transpose\(0, 3, 1, 2\)"),
        (lambda: fedelity.Data(bad, y), ValueError, r"x\[7, 2\] is not a finite number"),
        (lambda: fedelity.Data(x.astype(int), y), TypeError, "expected images as uint8"),
        (lambda: fedelity.Data(x.tolist(), y), TypeError, "a list is one of texts"),
        (lambda: fedelity.Data(x, y.astype(float)), TypeError, "y: expected class numbers or names, found float64"),
        (lambda: fedelity.Data(x, y * 0), ValueError, "two classes or more"),
        (lambda: fedelity.Data(x, y, classes=["a", "b"]), fedelity.DataError, "label 2, expected 0 to 1"),
        (lambda: fedelity.Data(x, y, x_test=x), ValueError, "given together"),
        (lambda: fedelity.Data(x, y, x_test=x[:, 1:], y_test=y), ValueError, "expected samples of 5 numbers, found 4"),
        (lambda: fedelity.Data(x, y, normalisation=([0.0], [1.0])), fedelity.DataError, "1 means, but there are 5"),
        (lambda: fedelity.Data(x, ["a"] * 300, classes=["b", "c"]), ValueError, "'a' is not one of the classes"),
        (lambda: x, TypeError, "expected fedelity.Data"),
    ]:
        with pytest.raises(error, match=text):
            fedelity.run(MLP, data=make())
    with pytest.raises(fedelity.DataError, match="has to give them again: in Python, with data="):
        fedelity.run({**MLP, "data": {"name": "arrays"}})


def test_partition():
    found = fedelity.partition({"partition": {"kind": "dirichlet", "alpha": 0.1, "clients": 7}})
    assert len(found.clients) == 7 and found.counts.shape == (7, 10)
    everyone = np.concatenate(found.clients)
    assert len(everyone) == len(set(everyone.tolist())) == found.counts.sum()
    x, y, client = table()
    data = fedelity.Data(x, y, client=client, x_test=x, y_test=y)
    found = fedelity.partition(data=data)
    assert found.names == ["0", "1", "2", "3"]
    assert all((client[indices] == number).all() for number, indices in enumerate(found.clients))
