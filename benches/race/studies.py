"""The studies and the systems that run them."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CORES = 2


@dataclass(frozen=True)
class Study:
    """A study: a configuration of Fedelity, and what the other systems cannot read from it."""

    name: str
    title: str
    config: str
    text: str
    method: str = "fedavg"
    # Clients keep one image each: what a system costs around the training.
    one_image: bool = False
    # Settings that were faster for the peers in this study than the alternative; see README.md.
    torch_threads: int = CORES
    channels_last: bool = False
    fedjax_backend: str = "jit"
    systems: tuple = ("fedelity", "torch", "pfl", "fedjax", "flower")

    @property
    def path(self):
        return FOLDER / "studies" / self.config


STUDIES = {
    study.name: study
    for study in (
        Study(
            "logistic",
            "Logistic regression",
            "logistic.toml",
            "MNIST, IID over 1,000 clients of 60 images, 10 clients a round, one epoch, batch 10, SGD with learning rate "
            "0.03; 7,850 weights, 100 rounds, tested after every tenth. Each client takes six small steps, so the time "
            "goes to everything around them.",
            torch_threads=1,
        ),
        Study(
            "users",
            "pfl's CIFAR-10 benchmark",
            "users.toml",
            "CIFAR-10, IID over 1,000 users of 50 images, 50 users a round, one epoch, batch 10, SGD with learning rate "
            "0.1, and the network of pfl's benchmark: 1,626,442 weights, dropout after the convolutions (0.25) and after the "
            "hidden layer (0.5). The first 20 of 1,500 rounds, tested after every tenth.",
            channels_last=True,
        ),
        Study(
            "ntd-fedavg",
            "FedNTD's setting: FedAvg",
            "ntd.toml",
            "CIFAR-10, two shards for each of 100 clients (500 images of mostly two classes), 10 clients a round, five "
            "epochs, batch 50, SGD with learning rate 0.01, momentum 0.9 and weight decay 1e-5, no augmentation; 2,156,490 "
            "weights; the first 3 of 200 rounds, each tested. Nearly all of the time is convolution.",
            channels_last=True,
        ),
        Study(
            "ntd-fedntd",
            "FedNTD's setting: FedNTD",
            "ntd.toml",
            "The same with FedNTD (beta 1, temperature 1), which the peers do not have; it was written for three of them, "
            "and as in public code the teacher runs on every batch. Fedelity runs it once per client and round, with the "
            "same result.",
            method="fedntd",
            channels_last=True,
            systems=("fedelity", "torch", "pfl", "flower"),
        ),
        Study(
            "one-image-small",
            "Clients with one image, 7,850 weights",
            "one-image-small.toml",
            "1,000 clients, 10 a round, 40 rounds. A client takes a single step on one image of MNIST, so this is what a "
            "system costs around the training.",
            one_image=True,
            torch_threads=1,
        ),
        Study(
            "one-image-large",
            "Clients with one image, 656,810 weights",
            "one-image-large.toml",
            "The same with 2.6 MB of weights (two hidden layers of 200 units, CIFAR-10): what it costs to move weights.",
            one_image=True,
        ),
    )
}

# Name in tables, script, and the packages whose versions are recorded.
PEERS = {
    "torch": ("PyTorch loop", "torch_loop.py", ("torch", "numpy")),
    "pfl": ("pfl", "pfl_app.py", ("pfl", "torch", "numpy")),
    "fedjax": ("FedJAX", "fedjax_app.py", ("fedjax", "jax", "jaxlib", "optax", "numpy")),
    "flower": ("Flower with Ray", "flower_app.py", ("flwr", "ray", "torch", "numpy")),
}


def title(system):
    """The name of a system in tables."""
    return "Fedelity" if system == "fedelity" else PEERS[system][0]


def fedelity_arguments(study, data, partition, seed, output, config=None):
    """The arguments of `fedelity run` for a study, or for another configuration of it."""
    return [
        "run",
        str(config or study.path),
        "--set",
        f"method.name={study.method}",
        "--set",
        f"seeds=[{seed}]",
        "--partition",
        str(partition),
        "--data-dir",
        str(data),
        "--threads",
        str(CORES),
        "--output",
        str(output),
        "--json",
        "--quiet",
    ]
