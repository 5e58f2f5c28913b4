"""A study in FedJAX."""

import os
import warnings

warnings.filterwarnings("ignore", category=DeprecationWarning)

from task import TEST_BATCH, arguments, checked, finished

task, check = arguments()
if task.fedjax_backend == "pmap":
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={task.cores}"

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
import optax


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def convolve(layer, x, padding):
    x = jax.lax.conv_general_dilated(x, layer["w"], (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(x + layer["b"])


def halve(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def drop(x, share, rng):
    """Dropout in training, where there is a key."""
    if rng is None:
        return x
    return jnp.where(jax.random.bernoulli(rng, 1 - share, x.shape), x / (1 - share), 0.0)


def multilayer(params, x):
    names = sorted(name for name in params if name.startswith("fc"))
    for name in names[:-1]:
        x = jax.nn.relu(dense(params[name], x))
    return dense(params[names[-1]], x)


def forward(params, x, rng=None):
    if task.model == "ntd-cnn":
        for name in ("conv1", "conv2"):
            x = halve(convolve(params[name], x, "SAME"))
        return multilayer(params, x.reshape(len(x), -1))
    if task.model == "pfl-cnn":
        keys = (None, None) if rng is None else jax.random.split(rng)
        x = halve(convolve(params["conv2"], convolve(params["conv1"], x, "VALID"), "VALID"))
        x = drop(x, 0.25, keys[0]).reshape(len(x), -1)
        x = drop(jax.nn.relu(dense(params["fc1"], x)), 0.5, keys[1])
        return dense(params["fc2"], x)
    return multilayer(params, x)


# The sides of the image that is flattened.
FLATTENED = {"ntd-cnn": (64, 8, 8), "pfl-cnn": (64, 14, 14)}


def initial():
    """The first weights, with channels last as XLA's CPU backend prefers them."""
    params = {}
    for name, w in task.weights().items():
        layer, kind = name.split(".")
        if kind == "weight" and w.ndim == 4:
            w = w.transpose(2, 3, 1, 0)
        elif kind == "weight":
            if task.model in FLATTENED and layer == "fc1":
                w = w.reshape(len(w), *FLATTENED[task.model]).transpose(0, 2, 3, 1).reshape(len(w), -1)
            w = w.T
        params.setdefault(layer, {})["w" if kind == "weight" else "b"] = jnp.asarray(w)
    return params


def model():
    return fedjax.Model(
        init=lambda rng: initial(),
        apply_for_train=lambda params, batch, rng: forward(params, batch["x"], rng),
        apply_for_eval=lambda params, batch: forward(params, batch["x"]),
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
        eval_metrics={"loss": fedjax.metrics.CrossEntropyLoss(), "accuracy": fedjax.metrics.Accuracy()},
    )


def channels_last(array):
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if task.model in FLATTENED else array.reshape(len(array), -1)


def main():
    fedjax.set_for_each_client_backend(task.fedjax_backend)
    net, params = model(), initial()
    test_x, test_y = task.arrays("test")
    test_data = fedjax.ClientDataset({"x": channels_last(test_x), "y": test_y})
    test_batches = list(test_data.padded_batch(batch_size=TEST_BATCH))
    if check:
        checked(fedjax.evaluate_model(net, params, test_batches)["loss"])
        return
    np.random.seed(task.seed)
    x, y = task.arrays("train")
    federated = fedjax.InMemoryFederatedData(
        {b"%04d" % i: {"x": channels_last(x[c]), "y": y[c]} for i, c in enumerate(task.clients())}
    )
    optimizer = fedjax.optimizers.create_optimizer_from_optax(
        optax.chain(optax.add_decayed_weights(task.weight_decay), optax.sgd(task.lr, momentum=task.momentum or None))
        if task.weight_decay
        else optax.sgd(task.lr, momentum=task.momentum or None)
    )
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch, num_epochs=task.epochs)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(net), optimizer, fedjax.optimizers.sgd(learning_rate=1.0), batches
    )
    state = algorithm.init(params)
    for number, chosen in enumerate(task.schedule, start=1):
        keys = jax.random.split(jax.random.PRNGKey(task.seed * 100_003 + number), len(chosen))
        clients = [(i, d, k) for (i, d), k in zip(federated.get_clients(b"%04d" % c for c in chosen), keys)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        accuracy = None
        if task.is_tested(number):
            accuracy = float(fedjax.evaluate_model(net, state.params, test_batches)["accuracy"])
        finished(number, accuracy)


if __name__ == "__main__":
    main()
