"""Writes what all peers read: images, partition, who trains when, and the first weights of each seed.

`race.py` runs it with the Python of the `torch` environment.
"""

import argparse
import gzip
import json
import re
import shutil
import struct
import subprocess
import tomllib
from pathlib import Path

import numpy as np

from studies import CORES, STUDIES, fedelity_arguments


def idx(path):
    """An array of MNIST's format."""
    content = gzip.open(path).read()
    rank = content[3]
    shape = struct.unpack_from(f">{rank}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def mnist(folder, split):
    stem = {"train": "train", "test": "t10k"}[split]
    images = idx(folder / "mnist" / f"{stem}-images-idx3-ubyte.gz")
    return images[:, None], idx(folder / "mnist" / f"{stem}-labels-idx1-ubyte.gz")


def cifar10(folder, split):
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if split == "train" else ["test_batch.bin"]
    rows = np.concatenate([np.fromfile(folder / "cifar-10-batches-bin" / n, np.uint8) for n in names]).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def write_data(name, normalisation, source, target):
    """Normalised images and labels as .npy files."""
    if (target / "test-labels.npy").exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    mean, std = (np.array(normalisation[k], np.float32)[:, None, None] for k in ("mean", "std"))
    for split in ("train", "test"):
        images, labels = {"mnist": mnist, "cifar10": cifar10}[name](source, split)
        np.save(target / f"{split}-images.npy", (images.astype(np.float32) / 255 - mean) / std)
        np.save(target / f"{split}-labels.npy", labels.astype(np.int64))


def write_partition(study, options, target):
    """The partition, which Fedelity draws; clients with one image keep their first."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    drawn = target.with_suffix(".drawn")
    drawn.unlink(missing_ok=True)
    command = [options.fedelity, "partition", str(study.path), "--data-dir", str(options.data), "-o", str(drawn)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    partition = json.loads(drawn.read_text())
    if study.one_image:
        partition["clients"] = [samples[:1] for samples in partition["clients"]]
    sizes = {len(samples) for samples in partition["clients"]}
    if len(sizes) != 1:
        raise SystemExit(f"{study.name}: clients differ in size, so rounds would differ in work: {sorted(sizes)}")
    drawn.unlink()
    target.write_text(json.dumps(partition))


def probe(study, options, partition, seed, *changes, config=None):
    """A run of Fedelity that is not timed; its folder."""
    output = options.scratch / "probe"
    shutil.rmtree(output, ignore_errors=True)
    command = [options.fedelity, *fedelity_arguments(study, options.data, partition, seed, output, config)]
    for change in changes:
        command += ["--set", change]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return output


def lines(output):
    """The rounds of a run folder."""
    return [row for row in map(json.loads, (output / "rounds.jsonl").read_text().splitlines()) if "round" in row]


def write_probe(study, options, partition, seed, target):
    """The first weights, their test loss, and the clients of each round, as Fedelity draws them."""
    if (target / "probe.json").exists():
        return
    # Who trains does not depend on the model; race.py checks it against every timed run.
    target.mkdir(parents=True, exist_ok=True)
    small = target / "small.toml"
    small.write_text(re.sub(r"(?m)^\[model\]\n.*$", '[model]\nname = "logistic"', study.path.read_text()))
    output = probe(study, options, partition, seed, "clients.epochs=1", "method.name=fedavg", config=small)
    schedule = [row["clients"] for row in lines(output)]
    # Steps this small leave the first weights as they are.
    output = probe(study, options, partition, seed, "rounds=1", "clients.epochs=1", "optimizer.lr=1e-30")
    shutil.copy(output / "model.safetensors", target / "initial.safetensors")
    found = {"schedule": schedule, "initial_loss": lines(output)[-1]["loss"]}
    (target / "probe.json").write_text(json.dumps(found))


def write_task(study, options, partition, data, seed, target):
    """Everything a peer needs to know."""
    write_probe(study, options, partition, seed, target)
    config = tomllib.loads(study.path.read_text())
    task = {
        "study": study.name,
        "seed": seed,
        "model": config["model"].get("name") or Path(config["model"]["file"]).stem,
        "method": study.method,
        "rounds": config["rounds"],
        "per_round": config["clients"]["per-round"],
        "epochs": config["clients"]["epochs"],
        "batch": config["clients"]["batch"],
        "weighting": config["clients"].get("weighting", "size"),
        "lr": config.get("optimizer", {}).get("lr", 0.02),
        "momentum": config.get("optimizer", {}).get("momentum", 0.9),
        "weight_decay": config.get("optimizer", {}).get("weight-decay", 1e-5),
        "every": config["evaluation"]["every"],
        "clients_total": config["partition"]["clients"],
        "data": str(data),
        "partition": str(partition),
        "cores": CORES,
        "torch_threads": study.torch_threads,
        "channels_last": study.channels_last,
        "fedjax_backend": study.fedjax_backend,
    }
    task |= json.loads((target / "probe.json").read_text())
    (target / "task.json").write_text(json.dumps(task))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fedelity", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--studies", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    options = parser.parse_args()
    for name in options.studies:
        study = STUDIES[name]
        config = tomllib.loads(study.path.read_text())
        data = options.scratch / "data" / config["data"]["name"]
        write_data(config["data"]["name"], config["data"]["normalisation"], options.data, data)
        partition = options.scratch / "tasks" / name / "partition.json"
        write_partition(study, options, partition)
        for seed in options.seeds:
            write_task(study, options, partition, data, seed, options.scratch / "tasks" / name / str(seed))
    shutil.rmtree(options.scratch / "probe", ignore_errors=True)


if __name__ == "__main__":
    main()
