"""A study in pfl, started by torchrun with one process per core."""

import copy
import itertools
import logging

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from networks import TEST_BATCH, build, images, not_true_distillation, test
from task import arguments, checked, finished


class Shuffled(Dataset):
    """A user whose samples come in another order in every epoch."""

    def iter(self, batch_size):
        x, y = self.raw_data
        for batch in torch.randperm(len(y)).split(batch_size):
            yield [x[batch], y[batch]]


class Rounds(CentralEvaluationCallback):
    """Tests the model after the rounds in which the others do, and reports every round."""

    def __init__(self, task, dataset, **arguments):
        super().__init__(dataset, **arguments)
        self.task = task

    def on_train_begin(self, *, model):
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        number, accuracy, metrics = central_iteration + 1, None, Metrics()
        if self.task.is_tested(number):
            metrics = self._eval(model)[1]
            accuracy = metrics.to_simple_dict()["Central val | accuracy"]
        if get_default_framework_module().distributed.global_rank == 0:
            finished(number, accuracy)
        return False, metrics


class Distilling(FederatedAveraging):
    """FedAvg whose clients keep the received model as a teacher."""

    def train_one_user(self, initial_model_state, model, user_dataset, central_context):
        teacher = model.pytorch_model.teacher[0]
        for name, parameter in teacher.named_parameters():
            parameter.data.copy_(initial_model_state[name])
        return super().train_one_user(initial_model_state, model, user_dataset, central_context)


def module(task):
    """The network with the two methods that pfl requires."""
    net = build(task)
    net.load_state_dict({name: torch.from_numpy(w) for name, w in task.weights().items()})
    # In a list, because the teacher's weights are not trained or sent.
    net.teacher = [copy.deepcopy(net)] if task.method == "fedntd" else []

    def loss(x, y, eval=False):
        net.train(not eval)
        logits = net(x)
        value = F.cross_entropy(logits, y)
        if net.teacher and not eval:
            with torch.no_grad():
                known = net.teacher[0](x)
            value = value + not_true_distillation(logits, known, y)
        return value

    @torch.no_grad()
    def metrics(x, y, eval=True):
        net.eval()
        logits = net(x)
        return {
            "loss": Weighted(float(F.cross_entropy(logits, y, reduction="sum")), len(y)),
            "accuracy": Weighted(int((logits.argmax(1) == y).sum()), len(y)),
        }

    net.loss, net.metrics = loss, metrics
    return net


def main():
    task, check = arguments()
    logging.disable(logging.INFO)
    np.random.seed(task.seed)
    torch.manual_seed(task.seed)
    x, y = task.arrays("train")
    test_x, test_y = task.arrays("test")
    test_x, test_y = images(task, test_x.copy()), torch.from_numpy(test_y)
    net = module(task)
    if check:
        checked(test(net, test_x, test_y)[1])
        return
    clients = [(images(task, x[c]), torch.from_numpy(y[c])) for c in task.clients()]
    chosen = itertools.chain.from_iterable(task.schedule)
    users = FederatedDataset(
        lambda user: Shuffled(raw_data=clients[user], user_id=str(user)), user_sampler=lambda: next(chosen)
    )
    model = PyTorchModel(
        model=net,
        local_optimizer_create=lambda parameters, lr: torch.optim.SGD(
            parameters, lr=lr, momentum=task.momentum, weight_decay=task.weight_decay
        ),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    weighting = WeightByDatapoints() if task.weighting == "size" else WeightByUser()
    (Distilling() if task.method == "fedntd" else FederatedAveraging()).run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=task.rounds,
            # Metrics of users, which the others do not measure: only in the first round, where pfl always does.
            evaluation_frequency=task.rounds + 1,
            train_cohort_size=task.per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users, postprocessors=[weighting]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=task.epochs, local_learning_rate=task.lr, local_batch_size=task.batch
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=TEST_BATCH),
        callbacks=[
            Rounds(
                task,
                Dataset(raw_data=(test_x, test_y)),
                model_eval_params=NNEvalHyperParams(local_batch_size=TEST_BATCH),
            )
        ],
    )


if __name__ == "__main__":
    main()
