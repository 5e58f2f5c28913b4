"""What a peer needs of a prepared study: settings, images, who holds them, who trains when, and the first weights."""

import json
import struct
import sys
from pathlib import Path

import numpy as np


TEST_BATCH = 1000


class Task:
    """A study for one seed, as `prepare.py` wrote it."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for key, value in json.loads((self.folder / "task.json").read_text()).items():
            setattr(self, key, value)

    def arrays(self, split):
        """Normalised images (N, C, H, W) and labels; pages are shared by all processes that read them."""
        images = np.load(Path(self.data) / f"{split}-images.npy", mmap_mode="r")
        return images, np.load(Path(self.data) / f"{split}-labels.npy")

    def clients(self):
        """The samples of each client, as indices into the training images."""
        return [np.asarray(c) for c in json.loads(Path(self.partition).read_text())["clients"]]

    def weights(self):
        """The first weights, by PyTorch's tensor names."""
        return read_safetensors(self.folder / "initial.safetensors")

    def is_tested(self, round_number):
        """Whether the global model is tested after this round."""
        return round_number == self.rounds or round_number % self.every == 0


def read_safetensors(path):
    """All float32 tensors of a file."""
    content = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, not F32")
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(content[start:end], np.float32).reshape(entry["shape"]).copy()
    return tensors


def finished(round_number, accuracy=None):
    """Reports a finished round to `race.py`."""
    sys.stdout.write(json.dumps({"round": round_number, "accuracy": accuracy}) + "\n")
    sys.stdout.flush()


def checked(loss):
    """Reports the test loss of the first weights to `race.py --check`."""
    sys.stdout.write(json.dumps({"loss": float(loss)}) + "\n")
    sys.stdout.flush()


def arguments():
    """The task named on the command line, and whether only its first weights are to be tested."""
    return Task(sys.argv[1]), "--check" in sys.argv[2:]
