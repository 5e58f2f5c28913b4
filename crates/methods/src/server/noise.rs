//! Gaussian noise that hides what any single client contributed.
//!
//! McMahan, Ramage, Talwar, Zhang, "Learning Differentially Private Recurrent Language Models", ICLR 2018,
//! arXiv:1710.06963, Algorithm 1, with a fixed number n of clients per round. With updates clipped to norm C:
//!
//!   at the server:  w = mean of w_i + N(0, (z C / n)^2), that is, N(0, (z C)^2) on the sum of the updates
//!   at the client:  w_i <- w_i + N(0, (z C)^2), before it leaves
//!
//! for every weight independently. With noise at the server, clients trust the server with their updates; with noise at
//! the client they trust nobody, and the mean has sqrt(n) times as much of it. What either is worth is in
//! `fl::accountant`.
//!
//! The guarantee is for the mean of uploads with equal weights and for nothing else that leaves a client, so
//! [`refusal`] says which methods cannot have it.

use fedelity_fl::rng::ChaCha8Rng;
use fedelity_fl::{Method, TermMeans, Upload};
use fedelity_keys::Choice;
use fedelity_nn::{Layout, Model, normal_pair};

/// The noise that hides an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Its standard deviation over the largest norm of an update, z.
    pub multiplier: f64,
    pub at: NoiseAt,
}

/// Who adds the noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum NoiseAt {
    /// The server, to the mean of the updates: clients trust it.
    #[default]
    Server,
    /// Each client, to its own update: it need not trust the server.
    Client,
}

/// Adds noise of this standard deviation to all trainable weights.
pub(super) fn add(layout: &Layout, params: &mut [f32], deviation: f64, rng: &mut ChaCha8Rng) {
    for range in layout.trainable() {
        for pair in params[range.clone()].chunks_mut(2) {
            let drawn = normal_pair(rng);
            let noisy =
                |(value, drawn): (&mut f32, f32)| *value = (f64::from(*value) + deviation * f64::from(drawn)) as f32;
            pair.iter_mut().zip(drawn).for_each(noisy);
        }
    }
}

/// Takes out of an upload what would leave the client without noise.
pub(super) fn strip(upload: &mut Upload) {
    (upload.examples, upload.steps, upload.terms) = (0, 0, TermMeans::default());
}

/// Why noise cannot hide the clients of a method on a model, if it cannot.
pub fn refusal(method: &dyn Method, model: &Model, at: NoiseAt) -> Option<String> {
    if let Some(reason) = other_arrays(method, model, "noise") {
        return Some(reason);
    }
    let (name, needs) = (method.name(), method.needs());
    if at == NoiseAt::Server && (needs.each_upload || needs.update_norms) {
        return Some(format!(
            "the method '{name}' uses single uploads on the server, not only their mean, which alone has noise; set \
             privacy.at = \"client\", so that uploads have it themselves"
        ));
    }
    statistics(model, "noise")
}

/// What would leave a client beside the weights, without what protects those.
pub fn unprotected(method: &dyn Method, model: &Model, protection: &str) -> Option<String> {
    other_arrays(method, model, protection).or_else(|| statistics(model, protection))
}

fn other_arrays(method: &dyn Method, model: &Model, protection: &str) -> Option<String> {
    let (name, sends, needs) = (method.name(), method.sends(model), method.needs());
    if !sends.is_empty() || needs.label_counts_leave_client {
        let mut names: Vec<&str> = sends.iter().map(|extra| &*extra.name).collect();
        if names.is_empty() {
            names.push("label counts");
        }
        let names = names.join(", ");
        let instead = "choose a method that sends only weights, such as fedavg";
        return Some(format!(
            "the method '{name}' also sends {names}, which would leave clients without {protection}; {instead}"
        ));
    }
    None
}

fn statistics(model: &Model, protection: &str) -> Option<String> {
    let layout = model.layout();
    (layout.trainable_len() < layout.len()).then(|| {
        let statistics = layout.len() - layout.trainable_len();
        let model = model.name();
        format!(
            "the {statistics} running statistics of the model '{model}' would leave clients without {protection}; use a model \
             without batch normalisation, such as one whose name ends in -gn"
        )
    })
}

#[cfg(test)]
mod tests {
    use fedelity_fl::{Purpose, stream};

    use super::*;
    use crate::{FedAvg, FedDf, FedGen, FedNova, Moon, Scaffold, trial};

    #[test]
    fn noise_has_its_mean_deviation_and_shape() {
        let layout_model = trial::model(false);
        let layout = layout_model.layout();
        let (mut all, rounds) = (Vec::new(), 400_000 / layout.len() as u64);
        for round in 0..rounds {
            let mut params = vec![3.0; layout.len()];
            add(layout, &mut params, 0.25, &mut stream(1, Purpose::Privacy, round, 0, 0));
            all.extend(params.iter().map(|value| (f64::from(*value) - 3.0) / 0.25));
        }
        let n = all.len() as f64;
        let moment = |power: i32| all.iter().map(|value| value.powi(power)).sum::<f64>() / n;
        // Five standard errors each: those of the moments of a standard normal are sqrt(1, 2, 15, 96) / sqrt(n).
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0_f64)] {
            let error = (moment(power) - expected).abs();
            assert!(error < 5.0 * (variance / n).sqrt(), "moment {power}: off by {error}");
        }
        let beyond = all.iter().filter(|value| value.abs() > 1.959964).count() as f64 / n;
        assert!((beyond - 0.05).abs() < 5.0 * (0.05 * 0.95 / n).sqrt(), "{beyond}");
        // Neighbours are independent.
        let pairs = all.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n;
        assert!(pairs.abs() < 5.0 / n.sqrt(), "{pairs}");
    }

    #[test]
    fn refusals_name_what_would_leave() {
        let (plain, with_statistics) = (trial::model(false), trial::model(true));
        let refused = |method: &dyn Method, at| refusal(method, &plain, at).unwrap();
        for at in [NoiseAt::Server, NoiseAt::Client] {
            assert_eq!(refusal(&FedAvg {}, &plain, at), None);
            assert_eq!(refusal(&Moon::default(), &plain, at), None);
            let text = refused(&Scaffold {}, at);
            let expected = "the method 'scaffold' also sends control-change, which would leave clients without noise; ";
            assert!(text.starts_with(expected), "{text}");
            assert!(refused(&FedNova {}, at).contains("effective-steps"));
            assert!(refused(&FedGen::default(), at).contains("label-counts"));
            let text = refusal(&FedAvg {}, &with_statistics, at).unwrap();
            assert!(text.starts_with("the 8 running statistics of the model 'small' would"), "{text}");
        }
        assert!(refused(&FedDf::default(), NoiseAt::Server).contains("privacy.at = \"client\""));
        assert_eq!(refusal(&FedDf::default(), &plain, NoiseAt::Client), None);
    }
}
