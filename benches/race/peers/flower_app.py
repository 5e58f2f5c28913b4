"""A study in Flower's simulation: Ray, one core per client."""

import os
import sys

os.environ["RACE_TASK"] = os.path.abspath(sys.argv[1])
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import flower_client
from networks import build, images, test
from task import arguments, checked, finished


class Scheduled(FedAvg):
    """FedAvg that tells each sampled node which client of the study it is."""

    def __init__(self, task):
        super().__init__(
            fraction_train=task.per_round / task.clients_total,
            fraction_evaluate=0.0,
            min_train_nodes=task.per_round,
            min_available_nodes=task.clients_total,
        )
        self.schedule = task.schedule

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        for message, client in zip(messages, self.schedule[server_round - 1], strict=True):
            own = ConfigRecord({"client": client, "server-round": server_round})
            message.content = RecordDict({"arrays": arrays, "config": own})
        return messages


def main():
    task, check = arguments()
    torch.set_num_threads(task.torch_threads)
    test_x, test_y = task.arrays("test")
    test_x, test_y = images(task, test_x.copy()), torch.from_numpy(test_y)
    net = build(task)
    net.load_state_dict({name: torch.from_numpy(w) for name, w in task.weights().items()})
    if check:
        checked(test(net, test_x, test_y)[1])
        return
    initial = ArrayRecord(net.state_dict())

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        accuracy = None
        if server_round and task.is_tested(server_round):
            net.load_state_dict(arrays.to_torch_state_dict())
            accuracy = test(net, test_x, test_y)[0]
        if server_round:
            finished(server_round, accuracy)
        return None if accuracy is None else MetricRecord({"accuracy": accuracy})

    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        Scheduled(task).start(grid=grid, initial_arrays=initial, num_rounds=task.rounds, evaluate_fn=evaluate)

    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=task.clients_total,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": task.cores}},
    )


if __name__ == "__main__":
    main()
