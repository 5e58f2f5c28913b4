#!/usr/bin/env python3
"""Fine-tuning steps of MiniLM on one thread, Fedelity against PyTorch with transformers, in one interleaved run.

    cargo bench -p fedelity-nn --bench encoder --no-run        # prints the path of the benchmark's program
    pip install torch transformers
    python3 benches/minilm.py PROGRAM [ROUNDS]

Both train all 22 million weights with Adam on the same 32 texts, as long as those of SST-5 (7 to 41 tokens). PyTorch pads
them to the longest, as its data collators do; Fedelity does not pad. A ratio is taken inside a round; the median counts.
"""
import statistics
import subprocess
import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

# Token counts of 32 texts of SST-5: every 267th of the training set, words and marks plus the two special tokens.
LENGTHS = [38, 8, 26, 12, 8, 24, 18, 17, 24, 14, 26, 7, 13, 19, 7, 24, 26, 31, 7, 28, 26, 30, 28, 13, 41, 17, 30, 20, 22, 34, 39, 18]
CLASSES, SECONDS = 5, 3.0


def model():
    config = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                        intermediate_size=1536, num_labels=CLASSES)
    return BertForSequenceClassification(config).train()


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-5)
    ids = torch.randint(0, 30522, (len(LENGTHS), max(LENGTHS)))
    mask = (torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]).long()
    labels = torch.randint(0, CLASSES, (len(LENGTHS),))

    def step():
        optimizer.zero_grad()
        net(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()

    step()
    ratios = []
    for _ in range(rounds):
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < SECONDS:
            step()
            steps += 1
        theirs = steps * len(LENGTHS) / (time.perf_counter() - start)
        command = [program, "lengths", ",".join(map(str, LENGTHS))]
        ours = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
        ratios.append(ours / theirs)
        print(f"Fedelity {ours:.1f} samples/s, PyTorch {theirs:.1f} samples/s, ratio {ours / theirs:.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f} [{min(ratios):.2f} to {max(ratios):.2f}]")


main()
