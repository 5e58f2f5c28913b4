//! Clients with test samples of their own.

use fedelity_fl::observe::subset;

use crate::Experiment;
use crate::observe::{Metrics, ObservationPlan, STEP};

/// The share of a client's training time that testing its model on its own samples may take, beyond the samples that
/// all local models are tested on.
const SHARE: f64 = 0.03;

/// The test samples of each client's own site.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    /// By client, all of them, in ascending order.
    pub(crate) own: Vec<Vec<u32>>,
    /// By client, the places of its own among the samples that all local models are tested on.
    pub(crate) shared: Vec<Vec<u32>>,
    /// By client, further ones that only its own model is tested on.
    pub(crate) extra: Vec<Vec<u32>>,
}

impl Sites {
    /// `None` if test samples do not belong to clients.
    pub(crate) fn new(experiment: &Experiment, plan: &ObservationPlan) -> Option<Self> {
        let owners = experiment.partition.test_owners(&experiment.data)?;
        let clients = &experiment.partition.clients;
        let (mut own, mut shared) = (vec![Vec::new(); clients.len()], vec![Vec::new(); clients.len()]);
        for (sample, owner) in (0..).zip(&owners) {
            owner.iter().for_each(|&client| own[client as usize].push(sample));
        }
        for (place, &sample) in (0..).zip(&plan.indices) {
            owners[sample as usize].iter().for_each(|&client| shared[client as usize].push(place));
        }
        let labels = &experiment.data.test.labels;
        let epochs = experiment.federation.training.epochs;
        let extra = |client: usize| {
            let rest: Vec<u32> =
                own[client].iter().copied().filter(|sample| plan.indices.binary_search(sample).is_err()).collect();
            let most = match experiment.observation.metrics {
                Metrics::All => rest.len(),
                Metrics::Standard => (SHARE * STEP * (clients[client].len() * epochs) as f64) as usize,
                Metrics::Fast => 0,
            };
            if most == 0 {
                return Vec::new();
            }
            let own_labels: Vec<u16> = rest.iter().map(|&sample| labels[sample as usize]).collect();
            let chosen = subset(&own_labels, experiment.data.classes.len(), most, experiment.federation.seed);
            chosen.into_iter().map(|place| rest[place as usize]).collect()
        };
        let extra = (0..clients.len()).map(extra).collect();
        Some(Self { own, shared, extra })
    }
}
