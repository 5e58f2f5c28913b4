"""A server and its clients give the weights of a run."""

import fedelity
import numpy as np
import pytest


def hashes(result):
    return [record["weights"]["sha256"] for record in result.runs[0].records]


def exchange(server, clients):
    """One round, with uploads in reverse order."""
    for client in reversed(server.open()):
        server.accept(client, clients(client).train(server.message(client)))
    assert server.missing() == []
    return server.close()


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedntd"])
def test_the_weights_of_a_run(small, method):
    config = {**small, "method": {"name": method}}
    expected = hashes(fedelity.run(config, "run"))
    server = fedelity.Server(config)
    made = {}

    def clients(number):
        if number not in made:
            made[number] = fedelity.Client(server.agreement, number, config=config)
        return made[number]

    for digest in expected:
        end = exchange(server, clients)
        assert end and sorted(end.counted) == end.counted and end.left_out == []
        assert server.hash == digest
        # Both sides can be rebuilt between rounds.
        server = fedelity.Server.restore(config, server.save())
        memories = {number: client.memory() for number, client in made.items()}
        made.clear()
        for number, memory in memories.items():
            clients(number).remember(memory)
    assert server.rounds == 3
    weights = fedelity.Result("run").runs[0].weights()
    assert list(weights) == list(server.weights())
    assert all((weights[name] == array).all() for name, array in server.weights().items())
    assert server.evaluate().accuracy == pytest.approx(fedelity.Result("run").runs[0].curve()[-1])


def test_refusals_say_why(small):
    server = fedelity.Server(small)
    chosen = server.open()
    client = fedelity.Client(server.agreement, chosen[0], config=small)
    upload = client.train(server.message(chosen[0]))
    with pytest.raises(fedelity.Refused, match="two nodes must not have one number"):
        server.accept(chosen[1], upload)
    with pytest.raises(fedelity.Refused, match="not a message"):
        server.accept(chosen[0], b"GET / HTTP/1.1")
    with pytest.raises(fedelity.Refused):
        server.accept(chosen[0], upload[:-1])
    server.accept(chosen[0], upload)
    with pytest.raises(fedelity.Refused, match="already"):
        server.accept(chosen[0], upload)
    assert server.missing() == chosen[1:]
    with pytest.raises(fedelity.Error, match="not one of the open round's"):
        server.message(next(number for number in range(5) if number not in chosen))
    before = server.hash
    server.abandon()
    assert server.hash == before and server.rounds == 0
    other = fedelity.Server({**small, "optimizer": {"lr": 0.5}})
    with pytest.raises(fedelity.Refused, match="another agreement"):
        client.train(other.message(other.open()[0]))
    with pytest.raises(fedelity.ConfigError, match="clients 0 to 4"):
        fedelity.Client(server.agreement, 99, config=small)


def test_too_few_uploads_repeat_the_round(small):
    server = fedelity.Server({**small, "server": {"quorum": 1.0}})
    server.open()
    end = server.close()
    assert not end and "0 of 3" in repr(end) and server.rounds == 0


def test_arrays_are_checked(small):
    server = fedelity.Server(small)
    images, labels = np.zeros((4, 1, 28, 28), np.uint8), np.array([0, 1, 2, 9])
    client = fedelity.Client(server.agreement, 0, x=images, y=labels)
    assert (client.id, client.samples) == (0, 4)
    assert fedelity.Client(server.agreement, 0, x=images[:, 0], y=labels).samples == 4
    for x, y, error, text in [
        (images.astype(float), labels, TypeError, "array of uint8, found float64"),
        (images[:, :, :27], labels, ValueError, r"shape \(1, 28, 28\)"),
        (images, labels[:3], ValueError, "4 samples, but y has 3"),
        (images, labels.astype(float), TypeError, "whole numbers"),
        (images, labels - 1, ValueError, "-1 is not a class number"),
        (images, labels + 1, fedelity.ConfigError, "label 10, but there are 10 classes"),
        (images.tolist(), labels, TypeError, "numpy array, found list"),
    ]:
        with pytest.raises(error, match=text):
            fedelity.Client(server.agreement, 0, x=x, y=y)
    with pytest.raises(TypeError, match="given once"):
        fedelity.Client(server.agreement, 0)
