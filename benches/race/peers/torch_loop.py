"""A study as a plain PyTorch loop: one process, one client after the other."""

import copy

import torch

from networks import build, images, test, train
from task import arguments, checked, finished


def main():
    task, check = arguments()
    torch.set_num_threads(task.torch_threads)
    torch.manual_seed(task.seed)
    x, y = task.arrays("train")
    test_x, test_y = task.arrays("test")
    test_x, test_y = images(task, test_x.copy()), torch.from_numpy(test_y)
    clients = [(images(task, x[c]), torch.from_numpy(y[c])) for c in task.clients()]
    net = build(task)
    net.load_state_dict({name: torch.from_numpy(w) for name, w in task.weights().items()})
    if check:
        checked(test(net, test_x, test_y)[1])
        return
    local = copy.deepcopy(net)
    for number, chosen in enumerate(task.schedule, start=1):
        total, samples = None, sum(len(clients[c][1]) for c in chosen)
        for c in chosen:
            local.load_state_dict(net.state_dict())
            train(task, local, *clients[c], teacher=net if task.method == "fedntd" else None)
            share = len(clients[c][1]) / samples
            with torch.no_grad():
                if total is None:
                    total = [p * share for p in local.parameters()]
                else:
                    torch._foreach_add_(total, list(local.parameters()), alpha=share)
        with torch.no_grad():
            torch._foreach_copy_(list(net.parameters()), total)
        finished(number, test(net, test_x, test_y)[0] if task.is_tested(number) else None)


if __name__ == "__main__":
    main()
