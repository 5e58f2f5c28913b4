"""The client of the Flower app. Ray's workers import it, so that a worker reads the images and builds the network once."""

import functools
import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from networks import build, images, train
from task import Task

app = ClientApp()


@functools.cache
def worker():
    """The task, its arrays, clients and networks, once per process."""
    task = Task(os.environ["RACE_TASK"])
    torch.set_num_threads(1)
    x, y = task.arrays("train")
    return task, x, y, task.clients(), build(task), build(task)


@app.train()
def fit(message: Message, context: Context) -> Message:
    task, x, y, clients, net, teacher = worker()
    config = message.content["config"]
    samples = clients[config["client"]]
    weights = message.content["arrays"].to_torch_state_dict()
    net.load_state_dict(weights)
    if task.method == "fedntd":
        teacher.load_state_dict(weights)
    torch.manual_seed(task.seed * 1_000_003 + config["server-round"] * 1009 + config["client"])
    train(
        task,
        net,
        images(task, x[samples]),
        torch.from_numpy(y[samples]),
        teacher=teacher if task.method == "fedntd" else None,
    )
    arrays = ArrayRecord(net.state_dict())
    metrics = MetricRecord({"num-examples": len(samples)})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
