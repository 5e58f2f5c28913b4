#!/usr/bin/env python3
"""Make the embedded set from the official Fashion-MNIST files.

    python3 make.py FOLDER

FOLDER holds the four official files (train-images-idx3-ubyte.gz and so on).
The first 600 training and the first 100 test images of each class are kept,
in the official order, and written beside this script as gzip IDX files.
Only the standard library is needed. The result does not depend on the clock.
"""

import gzip
import pathlib
import struct
import sys

CLASSES = 10
PIXELS = 28 * 28
PER_CLASS = {"train": 600, "t10k": 100}


def official(folder, name):
    return gzip.decompress((folder / f"{name}.gz").read_bytes())


def keep_first(labels, per_class):
    seen = [0] * CLASSES
    kept = []
    for index, label in enumerate(labels):
        if seen[label] < per_class:
            seen[label] += 1
            kept.append(index)
    assert seen == [per_class] * CLASSES, seen
    return kept


def store(path, raw):
    path.write_bytes(gzip.compress(raw, compresslevel=9, mtime=0))
    print(f"{path.name}: {len(raw)} bytes, {path.stat().st_size} compressed")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).resolve().parent
    for split, per_class in PER_CLASS.items():
        labels = official(source, f"{split}-labels-idx1-ubyte")
        images = official(source, f"{split}-images-idx3-ubyte")
        magic, count = struct.unpack(">II", labels[:8])
        assert magic == 0x801 and len(labels) == 8 + count
        magic, count, rows, columns = struct.unpack(">IIII", images[:16])
        assert magic == 0x803 and rows * columns == PIXELS
        assert len(images) == 16 + count * PIXELS
        kept = keep_first(labels[8:], per_class)
        store(
            here / f"{split}-labels-idx1-ubyte.gz",
            struct.pack(">II", 0x801, len(kept)) + bytes(labels[8 + i] for i in kept),
        )
        store(
            here / f"{split}-images-idx3-ubyte.gz",
            struct.pack(">IIII", 0x803, len(kept), rows, columns)
            + b"".join(images[16 + i * PIXELS : 16 + (i + 1) * PIXELS] for i in kept),
        )


if __name__ == "__main__":
    main()
