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
    method: str = "fedavg"
    idle: bool = False
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
        Study("logistic", "Logistic regression, 1,000 clients", "logistic.toml", torch_threads=1),
        Study("users", "pfl's CIFAR-10 benchmark", "users.toml"),
        Study("ntd-fedavg", "FedNTD's setting, FedAvg", "ntd.toml"),
        Study(
            "ntd-fedntd",
            "FedNTD's setting, FedNTD",
            "ntd.toml",
            method="fedntd",
            systems=("fedelity", "torch", "pfl", "flower"),
        ),
        Study("idle-small", "A client that does nothing, 7,850 weights", "idle-small.toml", idle=True, torch_threads=1),
        Study("idle-large", "A client that does nothing, 656,810 weights", "idle-large.toml", idle=True),
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


def fedelity_arguments(study, data, partition, seed, output):
    """The arguments of `fedelity run` for a study."""
    return [
        "run",
        str(study.path),
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
