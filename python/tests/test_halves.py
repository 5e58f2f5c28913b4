"""A server and its clients give the weights of a run."""

import base64
import json
import subprocess
import sys

import fedelity
import numpy as np
import pytest
import test_method  # noqa: F401: its methods in Python are registered


def hashes(result):
    return [record["weights"]["sha256"] for record in result.runs[0].records]


def exchange(server, clients):
    """One round, with uploads in reverse order."""
    for client in reversed(server.open()):
        server.accept(client, clients(client).train(server.message(client)))
    assert server.missing() == []
    return server.close()


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedntd", "my-ntd", "control", "average"])
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


def test_a_method_in_python_that_fails_is_named(small, monkeypatch):
    @fedelity.register
    class Broken(fedelity.Method):
        name = "broken-half"
        where = "nowhere"

        def loss(self, step):
            if self.where == "client":
                raise LookupError("not here")
            return fedelity.loss("fedavg", step.logits, step.labels)

        def conclude(self, server):
            if self.where == "server":
                raise LookupError("not there")

    def federation(where):
        config = {**small, "method": {"name": "broken-half", "where": where}}
        study, server = fedelity.Study(config), fedelity.Server(config)
        clients = {number: fedelity.Client(server.agreement, number, config=study) for number in server.open()}
        return server, clients

    server, clients = federation("client")
    number, client = next(iter(clients.items()))
    with pytest.raises(fedelity.MethodError, match="its hook loss raised LookupError: not here") as raised:
        client.train(server.message(number))
    assert isinstance(raised.value.__cause__, LookupError)
    server, clients = federation("server")
    for number, client in clients.items():
        server.accept(number, client.train(server.message(number)))
    before = server.hash
    with pytest.raises(fedelity.MethodError, match="its hook conclude raised LookupError: not there"):
        server.close()
    assert server.hash == before and server.rounds == 0

    # Elsewhere, the class is not known.
    server, _ = federation("nowhere")
    images = np.zeros((4, 28, 28), np.uint8)
    assert fedelity.Client(server.agreement, 0, x=images, y=np.arange(4)).samples == 4
    monkeypatch.delitem(fedelity._method._registered, "broken-half")
    with pytest.raises(fedelity.ConfigError, match="broken-half.*has called fedelity.register with it"):
        fedelity.Client(server.agreement, 0, x=images, y=np.arange(4))


# A server in a process of its own. It says what it does, line by line, and is told what clients send.
SERVER = """
import base64, json, sys
import fedelity

def say(**what):
    print(json.dumps(what), flush=True)

server = fedelity.Server(json.loads(sys.argv[1]), output="fed")
say(agreement=server.agreement, rounds=server.rounds)
while not server.done:
    server.open()
    for client in server.missing():
        say(client=client, message=base64.b64encode(server.message(client)).decode(), round=server.rounds + 1)
        server.accept(client, base64.b64decode(sys.stdin.readline()))
    say(closing=server.rounds + 1)
    server.close()
    say(closed=server.rounds, hash=server.hash)
say(ended=server.finish())
"""


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedgkd"])
def test_a_killed_server_goes_on_with_the_same_weights(small, method):
    """Killed before a round's first upload, between two, after the last, while it closes a round, and after a round."""
    config = {**small, "rounds": 6, "method": {"name": method}}
    expected = hashes(fedelity.run(config, "run"))
    # After this many requests for uploads in a round; "closing" and "closed" are lines of their own.
    kills = {(1, 0), (2, 1), (3, 2), (3, "closing"), (4, "closed"), (5, "closing"), (6, "closing")}
    clients, found, starts, ended = {}, {}, [], None
    while ended is None:
        assert len(starts) < 12
        command = [sys.executable, "-c", SERVER, json.dumps(config)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            asked = 0
            for line in process.stdout:
                said = json.loads(line)
                if "agreement" in said:
                    agreement = said["agreement"]
                    starts.append(said["rounds"])
                    continue
                ended = said.get("ended")
                if "closed" in said:
                    found[said["closed"]], asked = said["hash"], 0
                place = next(((said[word], word) for word in ("closing", "closed") if word in said), (said.get("round"), asked))
                if place in kills:
                    kills.remove(place)
                    process.kill()
                    break
                if "client" in said:
                    asked += 1
                    number = said["client"]
                    if number not in clients:
                        clients[number] = fedelity.Client(agreement, number, config=config)
                    upload = clients[number].train(base64.b64decode(said["message"]))
                    process.stdin.write(base64.b64encode(upload).decode() + "\n")
                    process.stdin.flush()
    assert not kills and ended == "finished"
    assert starts[0] == 0 and starts == sorted(starts) and starts[-1] >= 5
    assert all(expected[number - 1] == digest for number, digest in found.items())
    run = fedelity.Result("fed").runs[0]
    assert [record["weights"]["sha256"] for record in run.records] == expected
    weights = fedelity.Result("run").runs[0].weights()
    assert all((weights[name] == array).all() for name, array in run.weights().items())
    assert run.summary["status"] == {"kind": "finished"}
