//! FedAvg: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
//! Decentralized Data", AISTATS 2017, arXiv:1602.05629, Algorithm 1.
//!
//!   each client k:  w_k <- w^t;  for each local epoch, for each batch b:  w_k <- w_k - eta * grad l(w_k; b)
//!   the server:     w^{t+1} <- sum_k n_k / n * w_k,   n = sum of n_k over the clients of the round
//!
//! Several local steps per round save communication; averaging brings the clients back together. Where their data
//! differ, each one forgets during training what the others know. The other methods counteract this.
//!
//! Every hook is at its default: l is the cross-entropy and the mean is weighted by the clients' samples.
//!
//! Deviation: the first version of the paper weights by n_k over the samples of all clients; with partial
//! participation the weights must add up to 1, so n runs over the clients of the round, as in its later versions.

use fedelity_fl::Method;
use fedelity_keys::method;

/// Train locally, then average the weights, weighted by the clients' samples.
#[method(
    id = "fedavg",
    title = "FedAvg",
    reference = "McMahan et al., AISTATS 2017, arXiv:1602.05629",
    equation = "w = sum_k n_k / n * w_k",
    helps = "Where clients hold similar data, little beats it. The more their labels differ, the more it loses: on \
             CIFAR-10 with 100 clients, 62.5 % at Dirichlet 0.5, 46.5 % at 0.1 and 28.2 % at 0.05 (FedNTD, Table 1).",
    identity = Always
)]
pub struct FedAvg {}

impl Method for FedAvg {}
