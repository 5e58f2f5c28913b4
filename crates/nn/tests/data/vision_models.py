"""Writes the files that tests/it/vision.rs compares with: narrow residual networks and a narrow VGG-11, built as in
torchvision and in NIID-Bench, run by PyTorch in double precision. Each file has weights, inputs, labels, the logits in evaluation and in
training mode, the loss, the gradient of every weight and the running statistics after the step.

    python crates/nn/tests/data/vision_models.py
"""
import os
import torch
from torch import nn
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 3
# Smallest distance of any ReLU input from the kink: rounding across it would change the gradient.
NEAREST = []


def relu(x):
    NEAREST.append(x.detach().abs().min().item())
    return torch.relu(x)


class Relu(nn.Module):
    def forward(self, x):
        return relu(x)


class Block(nn.Module):
    def __init__(self, channels, width, stride, norm, bottleneck):
        super().__init__()
        out = width * 4 if bottleneck else width
        sizes = [(width, 1, 1), (width, 3, stride), (out, 1, 1)] if bottleneck else [(width, 3, stride), (out, 3, 1)]
        self.count, before = len(sizes), channels
        for i, (to, kernel, step) in enumerate(sizes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(before, to, kernel, step, kernel // 2, bias=False))
            setattr(self, f"bn{i}", norm(to))
            before = to
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = relu(y) if i < self.count else y
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, width, blocks, bottleneck, norm, imagenet, projection=False):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False) if imagenet else nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1, channels = norm(width), width
        self.maxpool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        for stage, count in enumerate(blocks):
            layers = []
            for block in range(count):
                stride = 2 if stage and not block else 1
                layers.append(Block(channels, width << stage, stride, norm, bottleneck))
                channels = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages, self.projection = len(blocks), projection
        if projection:
            self.proj1, self.proj2 = nn.Linear(channels, channels), nn.Linear(channels, 256)
            self.head = nn.Linear(256, CLASSES)
        else:
            self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.maxpool(relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        x = x.mean((2, 3))
        return self.head(self.proj2(relu(self.proj1(x)))) if self.projection else self.fc(x)


class Vgg(nn.Module):
    """Without dropout, whose masks cannot match between implementations."""

    def __init__(self, width):
        super().__init__()
        layers, channels = [], 3
        for factor in [1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0]:
            if factor == 0:
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(channels, factor * width, 3, padding=1), Relu()]
                channels = factor * width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(channels, channels), Relu(), nn.Dropout(0.0),
                                        nn.Linear(channels, channels), Relu(), nn.Linear(channels, CLASSES))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def write(name, make, side, samples):
    for seed in range(100):
        NEAREST.clear()
        out = run(make, side, samples, seed)
        if min(NEAREST) > 1e-5:
            return save_file({key: value.float() for key, value in out.items()}, f"{HERE}/{name}.safetensors")
    raise SystemExit(f"{name}: every seed is too close to a kink")


def run(make, side, samples, seed):
    torch.manual_seed(seed)
    model, generator = make(), torch.Generator().manual_seed(seed)
    for value in model.parameters():
        with torch.no_grad():
            value.add_(torch.randn(value.shape, generator=generator) * 0.1)
    for key, value in model.named_buffers():
        if "running" in key:
            value.add_(torch.rand(value.shape, generator=generator) * 0.5)
    out = {"weights/" + key: value.clone() for key, value in model.state_dict().items() if "num_batches" not in key}
    out["inputs"] = torch.randn(samples, 3, side, side, generator=generator)
    labels = torch.arange(samples) % CLASSES
    model, inputs = model.double(), out["inputs"].double()
    model.eval()
    with torch.no_grad():
        out["evaluation"] = model(inputs)
    model.train()
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    out.update(training=logits.detach(), loss=loss.detach().reshape(1), labels=labels.float())
    out.update({"gradient/" + key: value.grad.clone() for key, value in model.named_parameters()})
    out.update({"after/" + key: value.clone() for key, value in model.named_buffers() if "running" in key})
    return out


def main():
    group = lambda channels: nn.GroupNorm(channels // 2, channels)
    # Nine samples: more than one vector, the last one partly filled.
    write("tiny-resnet18-bn", lambda: ResNet(2, [2, 2, 2, 2], False, nn.BatchNorm2d, imagenet=False), 8, 9)
    write("tiny-resnet18-gn", lambda: ResNet(2, [2, 2, 2, 2], False, group, imagenet=True, projection=True), 33, 5)
    # Like ResNet-50 but shallower: rounding errors grow from layer to layer, in PyTorch too.
    write("tiny-bottleneck-bn", lambda: ResNet(2, [1, 2, 1], True, nn.BatchNorm2d, imagenet=True), 25, 9)
    write("tiny-bottleneck-gn", lambda: ResNet(2, [1, 2, 1], True, group, imagenet=False), 9, 5)
    write("tiny-vgg11", lambda: Vgg(2), 32, 5)


if __name__ == "__main__":
    main()
