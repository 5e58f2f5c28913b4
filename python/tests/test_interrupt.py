"""Ctrl-C ends a run in order."""

import signal
import subprocess
import sys
import time

import fedelity
import pytest

PROGRAM = """
import fedelity, sys
config = {"rounds": ROUNDS, "partition": {"clients": 5}, "clients": {"per-round": 3, "epochs": 2}}
config["method"] = {"name": "METHOD"}
@fedelity.register
class Mine(fedelity.Method):
    name = "mine"
    def loss(self, step):
        return fedelity.loss("fedavg", step.logits, step.labels)
try:
    fedelity.run(config, "out", progress=lambda record: print(record["round"], flush=True))
except KeyboardInterrupt as interrupt:
    print("interrupted:", interrupt, flush=True)
    sys.exit(7)
"""


@pytest.mark.parametrize("method", ["fedavg", "mine"])
def test_an_interrupted_run_goes_on(method):
    program = PROGRAM.replace("METHOD", method)
    running = subprocess.Popen(
        [sys.executable, "-c", program.replace("ROUNDS", "400")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Whoever runs the tests may ignore interrupts, as nohup and background jobs do.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert running.stdout.readline() == "1\n"
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 7, err
    assert "go on with fedelity.resume('out')" in out or 'go on with fedelity.resume("out")' in out, out
    done = len(fedelity.Result("out").runs[0].records)
    assert 1 <= done < 400 and fedelity.Result("out").runs[0].summary["status"] == {"kind": "interrupted"}

    @fedelity.register
    class Mine(fedelity.Method):
        name = "mine"

        def loss(self, step):
            return fedelity.loss("fedavg", step.logits, step.labels)

    config = {"partition": {"clients": 5}, "clients": {"per-round": 3, "epochs": 2}, "method": {"name": method}}
    more = fedelity.run({**config, "rounds": done + 2}, "whole")
    # A run may be resumed to any number of rounds beyond what it has.
    part = fedelity.resume("out", rounds=done + 2)
    assert part.runs[0].records[-1]["weights"] == more.runs[0].records[-1]["weights"]


def test_a_function_that_fails_ends_the_run():
    def progress(record):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        fedelity.run({"rounds": 100, "partition": {"clients": 3}}, "out", progress=progress)
    assert fedelity.Result("out").runs[0].summary["status"] == {"kind": "interrupted"}
