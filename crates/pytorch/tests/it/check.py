"""Compares models with the outputs and gradients that the engine found, one folder per model."""

import importlib.util
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def within(found, expected, bound, what):
    assert found.shape == expected.shape, f"{what}: {found.shape}, not {expected.shape}"
    scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    error = (found - expected).abs().max().item() / scale if expected.numel() else 0.0
    assert error <= bound, f"{what}: differs by {error} of {scale}"
    return error


for folder in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("model", f"{folder}/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Net()
    model.load_state_dict(load_file(f"{folder}/weights.safetensors"))
    data = load_file(f"{folder}/data.safetensors")
    inputs = [data[name] for name in ("input_ids", "attention_mask", "input") if name in data]
    model.eval()
    with torch.no_grad():
        error = within(model(*inputs), data["logits"], 1e-5, f"{folder}: logits")
    assert len(module.CLASSES) == data["logits"].shape[1]
    worst = 0.0
    if "labels" in data:
        model.train()
        F.cross_entropy(model(*inputs), data["labels"]).backward()
        for name, parameter in model.named_parameters():
            found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            worst = max(worst, within(found, data[f"gradient.{name}"], 1e-4, f"{folder}: gradient of {name}"))
    print(f"{folder}: logits differ by {error:.1e}, gradients by {worst:.1e}")
