"""The studies' networks in PyTorch, with the tensor names of Fedelity's files, and their training and test."""

import torch
import torch.nn.functional as F
from torch import nn

from task import TEST_BATCH

class Logistic(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))


class Mlp(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(inputs, 200), nn.Linear(200, 200), nn.Linear(200, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class NtdCnn(nn.Module):
    """32 and 64 channels, 512 units: 2,156,490 weights."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
        self.fc1, self.fc2 = nn.Linear(4096, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class PflCnn(nn.Module):
    """The network of pfl's CIFAR-10 benchmark, with names for its layers: 1,626,442 weights."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(12544, 128), nn.Linear(128, 10)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(self.dropout2(F.relu(self.fc1(self.dropout1(x).flatten(1)))))


def build(task):
    """The task's network, in the memory format that is faster for it."""
    networks = {"logistic": lambda: Logistic(784), "mlp": lambda: Mlp(3072), "ntd-cnn": NtdCnn, "pfl-cnn": PflCnn}
    net = networks[task.model]()
    return net.to(memory_format=torch.channels_last) if task.channels_last else net


def images(task, array):
    """A tensor of these images in the task's memory format."""
    tensor = torch.from_numpy(array)
    return tensor.contiguous(memory_format=torch.channels_last) if task.channels_last else tensor


def not_true_distillation(student, teacher, labels):
    """FedNTD's loss with beta = 1 and temperature 1: the Kullback-Leibler divergence over the classes that are not true."""
    others = torch.ones_like(student, dtype=torch.bool).scatter_(1, labels[:, None], False)
    student, teacher = (z[others].view(len(labels), -1) for z in (student, teacher))
    return F.kl_div(F.log_softmax(student, 1), F.softmax(teacher, 1), reduction="batchmean")


def train(task, net, x, y, teacher=None):
    """Local training of one client."""
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=task.lr, momentum=task.momentum, weight_decay=task.weight_decay)
    for _ in range(task.epochs):
        for batch in torch.randperm(len(y)).split(task.batch):
            xb, yb = x[batch], y[batch]
            optimizer.zero_grad()
            logits = net(xb)
            loss = F.cross_entropy(logits, yb)
            if teacher is not None:
                with torch.no_grad():
                    known = teacher(xb)
                loss = loss + not_true_distillation(logits, known, yb)
            loss.backward()
            optimizer.step()


@torch.no_grad()
def test(net, x, y):
    """Accuracy and mean loss."""
    net.eval()
    correct, loss = 0, 0.0
    for start in range(0, len(y), TEST_BATCH):
        logits, labels = net(x[start : start + TEST_BATCH]), y[start : start + TEST_BATCH]
        correct += int((logits.argmax(1) == labels).sum())
        loss += float(F.cross_entropy(logits, labels, reduction="sum"))
    return correct / len(y), loss / len(y)
