//! Server-side settings that work with every method: how large an update may be, how uploads become one vector, and how
//! the server steps towards it.
//!
//! [`Composed`] wraps a method. A [`Clip`] bounds every update before anything else sees it, and may hide it by noise, a
//! [`Rule`] other than the mean decides which uploads count, or what replaces their mean, and a [`ServerOptimizer`]
//! treats the method's new weights as a direction instead of a destination. The method itself and the training loops
//! are unaware of it.

mod clip;
mod noise;
mod optimizer;
mod rule;

use std::sync::Arc;

use fedelity_fl::rng::{ChaCha8Rng, SERVER};
use fedelity_fl::{
    Extra, FlError, Gather, Local, Method, Named, Needs, Outbox, Payload, Purpose, Received, Result, Server, Step,
    Teacher, Terms, Trained, Upload, stream,
};
use fedelity_nn::{Model, Params};

pub use clip::Clip;
pub use noise::{Noise, NoiseAt, refusal, unprotected};
pub use optimizer::{Adaptive, ServerOptimizer};
pub use rule::Rule;

/// A method with a user-selected limit on updates, rule and server optimiser.
///
/// With a rule other than the mean, uploads are held until the round closes; only then does the method fold in those
/// that the rule keeps. An upload with zero weight in the mean is never folded in.
#[derive(Debug)]
pub struct Composed {
    inner: Arc<dyn Method>,
    rule: Rule,
    optimizer: ServerOptimizer,
    clip: Option<Clip>,
}

impl Composed {
    /// The method with these settings. With the mean, no optimiser and no limit, it is the method itself.
    pub fn around(
        inner: Arc<dyn Method>,
        rule: Rule,
        optimizer: ServerOptimizer,
        clip: Option<Clip>,
    ) -> Arc<dyn Method> {
        if rule == Rule::Mean && optimizer == ServerOptimizer::None && clip.is_none() {
            return inner;
        }
        Arc::new(Self { inner, rule, optimizer, clip })
    }

    /// The limit, and the standard deviation of the noise on an update, if it is added there.
    fn noise(&self, there: NoiseAt) -> Option<(Clip, f64)> {
        let clip = self.clip?;
        clip.noise.filter(|noise| noise.at == there).map(|noise| (clip, noise.multiplier * clip.norm))
    }

    /// Lets the method fold in the uploads that the rule keeps.
    fn fold(&self, server: &mut Server<'_>, gather: &mut Gather) -> Result<()> {
        let uploads = std::mem::take(&mut gather.uploads);
        let refuse = |reason| FlError::Method { method: self.inner.name(), reason };
        let mut kept = self.rule.choose(&uploads).map_err(refuse)?.into_iter().peekable();
        for (k, upload) in uploads.into_iter().enumerate() {
            if kept.next_if_eq(&k).is_some() {
                self.inner.collect(server, gather, &upload)?;
                gather.uploads.push(upload);
            } else {
                gather.refused.push(upload.client);
            }
        }
        if gather.mean.added() > 0 {
            let vectors: Vec<&[f32]> = gather.uploads.iter().map(|upload| &*upload.params).collect();
            if let Some(values) = self.rule.estimate(&vectors) {
                // The method may read the weight of the mean, so the estimate replaces it with that weight.
                let weight = gather.mean.weight();
                gather.mean.clear();
                gather.mean.add(weight, &values)?;
            }
        }
        Ok(())
    }
}

impl Named for Composed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl Method for Composed {
    fn needs(&self) -> Needs {
        let needs = self.inner.needs();
        Needs { each_upload: needs.each_upload || self.rule != Rule::Mean, ..needs }
    }

    fn sends(&self, model: &Model) -> Vec<Extra> {
        self.inner.sends(model)
    }

    fn receives(&self, model: &Model) -> Vec<Extra> {
        self.inner.receives(model)
    }

    fn init(&self, server: &mut Server<'_>) -> Result<Payload> {
        self.inner.init(server)
    }

    fn prepare(&self, server: &mut Server<'_>) -> Result<Payload> {
        self.inner.prepare(server)
    }

    fn teachers(&self, local: &Local<'_>) -> Result<Vec<Teacher>> {
        self.inner.teachers(local)
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        self.inner.loss(local, step)
    }

    fn adjust(&self, local: &mut Local<'_>, w: &[f32], grad: &mut [f32]) -> Result<Terms> {
        self.inner.adjust(local, w, grad)
    }

    fn finish(&self, local: &mut Local<'_>, done: &mut Trained<'_>) -> Result<Outbox> {
        self.inner.finish(local, done)
    }

    fn release(&self, local: &Local<'_>, upload: &mut Upload, rng: &mut ChaCha8Rng) -> Result<()> {
        self.inner.release(local, upload, rng)?;
        if let Some((clip, deviation)) = self.noise(NoiseAt::Client) {
            let layout = local.model.layout();
            clip.apply(layout, local.global, &mut upload.params);
            noise::add(layout, &mut upload.params, deviation, rng);
            noise::strip(upload);
        }
        Ok(())
    }

    fn admit(&self, server: &Server<'_>, gather: &mut Gather, upload: &mut Received) -> Result<()> {
        self.inner.admit(server, gather, upload)?;
        // What clients have clipped and hidden themselves has no norm that means anything.
        if let Some(clip) = self.clip.filter(|_| self.noise(NoiseAt::Client).is_none()) {
            let larger = clip.apply(server.model.layout(), server.global, &mut upload.upload.params);
            *gather.clipped.get_or_insert(0) += usize::from(larger);
        }
        Ok(())
    }

    fn collect(&self, server: &mut Server<'_>, gather: &mut Gather, upload: &Received) -> Result<()> {
        match self.rule {
            Rule::Mean => self.inner.collect(server, gather, upload),
            // The engine keeps the upload for `conclude`.
            Rule::Median | Rule::TrimmedMean { .. } | Rule::Krum { .. } => Ok(()),
        }
    }

    fn conclude(&self, server: &mut Server<'_>, gather: &mut Gather, state: &mut Payload) -> Result<Params> {
        if self.rule != Rule::Mean {
            self.fold(server, gather)?;
        }
        if let Some((_, deviation)) = self.noise(NoiseAt::Server) {
            // The method sees nothing of the uploads but their mean, and that only with noise.
            let (mut mean, weight) = (gather.mean.finish()?, gather.mean.weight());
            let mut rng = stream(server.seed, Purpose::Privacy, server.round as u64, SERVER, 0);
            noise::add(server.model.layout(), &mut mean, deviation / weight, &mut rng);
            gather.mean.clear();
            gather.mean.add(weight, &mean)?;
        }
        let mut moments = optimizer::Moments::take(state);
        let mut new = self.inner.conclude(server, gather, state)?;
        self.optimizer.step(server.model.layout(), &mut moments, server.global, &mut new);
        moments.put(state);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use fedelity_keys::{KeyError, keys, read};
    use proptest::prelude::*;

    use super::*;
    use crate::trial;
    use crate::{FedAvg, FedNova, Scaffold};

    #[keys]
    struct Section {
        #[key(flatten)]
        optimizer: ServerOptimizer,
        #[key(flatten)]
        rule: Rule,
    }

    fn section(text: &str) -> Result<Section, KeyError> {
        Ok(read(&text.parse().unwrap(), "server", &mut ())?.0)
    }

    #[test]
    fn keys_and_their_defaults() {
        let none = Section { optimizer: ServerOptimizer::None, rule: Rule::Mean };
        assert_eq!(section("").unwrap(), none);
        assert_eq!((none.optimizer.name(), none.rule.name()), ("none", "mean"));
        let found = section("optimizer = \"fedadam\"\nlr = 0.03\nrule = \"krum\"\nbyzantine = 2").unwrap();
        let adaptive = Adaptive { lr: 0.03, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
        let optimizer = ServerOptimizer::FedAdam(adaptive);
        assert_eq!(found, Section { optimizer, rule: Rule::Krum { byzantine: 2, keep: 1 } });
        let found = section("optimizer = \"fedyogi\"\nlr = 1\nrule = \"trimmed-mean\"").unwrap();
        let optimizer = ServerOptimizer::FedYogi(Adaptive { lr: 1.0, ..adaptive });
        assert_eq!(found, Section { optimizer, rule: Rule::TrimmedMean { trim: 0.1 } });
        let found = section("optimizer = \"fedavgm\"\nrule = \"median\"").unwrap();
        let optimizer = ServerOptimizer::FedAvgM { lr: 1.0, momentum: 0.9 };
        assert_eq!(found, Section { optimizer, rule: Rule::Median });
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |text: &str| section(text).unwrap_err().to_string();
        assert_eq!(
            refused("optimizer = \"fedavgm\"\nbeta1 = 0.9"),
            "server.beta1: not a key of server.optimizer = \"fedavgm\" (its keys: lr, momentum); it goes with fedadam, fedyogi"
        );
        for text in [
            "byzantine = 1",
            "lr = 1.0",
            "optimizer = \"fedadam\"\ntau = 0.0",
            "optimizer = \"fedavgm\"\nmomentum = 1.0",
            "optimizer = \"fedyogi\"\nbeta2 = -0.1",
            "rule = \"trimmed-mean\"\ntrim = 0.5",
            "rule = \"krum\"\nkeep = 0",
            "rule = \"mode\"",
            "momentun = 1",
        ] {
            let key = text.lines().last().unwrap().split(' ').next().unwrap();
            assert_eq!(section(text).unwrap_err().key, format!("server.{key}"));
        }
    }

    fn composed(inner: impl Method + 'static, rule: Rule, optimizer: ServerOptimizer) -> Arc<dyn Method> {
        Composed::around(Arc::new(inner), rule, optimizer, None)
    }

    const STEP: ServerOptimizer = ServerOptimizer::FedAvgM { lr: 1.0, momentum: 0.0 };

    #[test]
    fn a_full_step_without_momentum_is_the_method_itself() {
        let run = trial::TrialRun { batch_norm: true, ..trial::TrialRun::default() };
        assert_eq!(run.shared(composed(FedAvg {}, Rule::Mean, STEP)), run.global(FedAvg {}));
        assert_eq!(run.shared(composed(Scaffold {}, Rule::Mean, STEP)), run.global(Scaffold {}));
        assert_eq!(run.shared(composed(FedNova {}, Rule::Mean, STEP)), run.global(FedNova {}));
    }

    #[test]
    fn holding_uploads_back_changes_nothing() {
        // A trimmed mean that trims nothing weights clients equally, so they get equal sizes.
        let run = trial::TrialRun { sizes: &[20; 6], ..trial::TrialRun::default() };
        let rule = Rule::TrimmedMean { trim: 0.0 };
        let (found, plain) = (run.shared(composed(Scaffold {}, rule, ServerOptimizer::None)), run.global(Scaffold {}));
        assert!(found.iter().zip(plain.iter()).all(|(found, plain)| (found - plain).abs() <= 1e-6), "differ");
    }

    #[test]
    fn poison_does_not_reach_the_weights_or_the_state() {
        let good = |shift: f32| (0..6).map(|k| 0.1 * k as f32 + shift).collect::<Vec<f32>>();
        let rules = [
            Rule::Median,
            Rule::TrimmedMean { trim: 0.2 },
            Rule::Krum { byzantine: 1, keep: 1 },
            Rule::Krum { byzantine: 1, keep: 3 },
        ];
        for rule in rules {
            for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30] {
                for place in 0..7 {
                    let mut vectors: Vec<Vec<f32>> = (0..7).map(|k| good(0.01 * k as f32)).collect();
                    vectors[place] = vec![poison; 6];
                    let uploads = vectors.into_iter().map(|vector| {
                        let change = vector.clone();
                        trial::upload(4, vector, Payload::new().with("control-change", change))
                    });
                    let method = composed(Scaffold {}, rule, ServerOptimizer::None);
                    let coordinator = trial::serve_shared(method, &[0.0; 6], Payload::new(), uploads);
                    for (found, clean) in coordinator.global().iter().zip(good(0.03)) {
                        assert!((found - clean).abs() <= 0.04, "{rule:?} {poison} {found}");
                    }
                    let control = coordinator.state().get("control").unwrap();
                    assert!(control.iter().all(|value| value.is_finite()));
                }
            }
        }
        let all_bad = (0..3).map(|_| trial::upload(4, vec![f32::NAN; 6], Payload::new()));
        let method = composed(FedAvg {}, Rule::Median, ServerOptimizer::None);
        let error = trial::try_serve(method, &[0.0; 6], Payload::new(), all_bad).unwrap_err().to_string();
        assert_eq!(error, "the method 'fedavg': the rule 'median': none of the 0 uploads counts");
    }

    #[test]
    fn krum_needs_enough_uploads() {
        let uploads = (0..4).map(|_| trial::upload(4, vec![0.0; 6], Payload::new()));
        let method = composed(FedAvg {}, Rule::Krum { byzantine: 1, keep: 1 }, ServerOptimizer::None);
        let error = trial::try_serve(method, &[0.0; 6], Payload::new(), uploads).unwrap_err().to_string();
        assert_eq!(
            error,
            "the method 'fedavg': the rule 'krum' with byzantine = 1 needs at least 5 uploads per round, but there are 4"
        );
    }

    #[test]
    fn nothing_to_compose_is_the_method_itself() {
        let inner: Arc<dyn Method> = Arc::new(FedAvg {});
        assert!(Arc::ptr_eq(&inner, &Composed::around(inner.clone(), Rule::Mean, ServerOptimizer::None, None)));
    }

    #[test]
    fn noise_at_the_server_is_on_the_mean_of_clipped_updates() {
        let server = |multiplier: f64, uploads: usize| {
            let noise = (multiplier > 0.0).then_some(Noise { multiplier, at: NoiseAt::Server });
            let clip = Some(Clip { norm: 2.0, noise });
            let method = Composed::around(Arc::new(FedAvg {}), Rule::Mean, ServerOptimizer::None, clip);
            // Each update is (6, 8, 0, ...), ten long, and clipped to (1.2, 1.6, 0, ...).
            let uploads = (0..uploads).map(|_| trial::upload(1, vec![6.5, 8.5, 0.5, 0.5, 0.5, 0.5], Payload::new()));
            trial::serve_shared(method, &[0.5; 6], Payload::new(), uploads).global().0.clone()
        };
        let mean = server(0.0, 3);
        assert_eq!(mean, [1.7, 2.1, 0.5, 0.5, 0.5, 0.5]);
        let mut rng = stream(5, Purpose::Privacy, 1, SERVER, 0);
        let drawn: Vec<f32> = (0..3).flat_map(|_| fedelity_nn::normal_pair(&mut rng)).collect();
        for (multiplier, uploads) in [(0.5, 1), (0.5, 4), (3.0, 4), (3.0, 9)] {
            let found = server(multiplier, uploads);
            for ((found, mean), drawn) in found.iter().zip(&mean).zip(&drawn) {
                let expected = f64::from(*mean) + multiplier * 2.0 / uploads as f64 * f64::from(*drawn);
                assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
            }
        }
    }

    #[test]
    fn identical_uploads_come_back() {
        let vector = vec![0.1, -3.7e-12, 1e6, -0.0, 7.25, -1e-40];
        let rules = [Rule::Median, Rule::TrimmedMean { trim: 0.25 }, Rule::Krum { byzantine: 1, keep: 2 }];
        for rule in rules {
            let uploads = (0..6).map(|_| trial::upload(3, vector.clone(), Payload::new()));
            let method = composed(FedAvg {}, rule, ServerOptimizer::None);
            let coordinator = trial::serve_shared(method, &[0.5; 6], Payload::new(), uploads);
            assert_eq!(coordinator.global().0, vector, "{rule:?}");
        }
    }

    const RULES: [Rule; 6] = [
        Rule::Mean,
        Rule::Median,
        Rule::TrimmedMean { trim: 0.0 },
        Rule::TrimmedMean { trim: 0.3 },
        Rule::Krum { byzantine: 1, keep: 1 },
        Rule::Krum { byzantine: 1, keep: 3 },
    ];

    /// The weights after a round of FedAvg with a rule.
    fn combined(rule: Rule, uploads: &[(usize, Vec<f32>)]) -> Vec<f32> {
        let uploads = uploads.iter().map(|(examples, vector)| trial::upload(*examples, vector.clone(), Payload::new()));
        let method = composed(FedAvg {}, rule, ServerOptimizer::None);
        trial::serve_shared(method, &[0.5; 6], Payload::new(), uploads).global().0.clone()
    }

    /// Any number that the server does not refuse.
    fn sane() -> impl Strategy<Value = f32> {
        any::<u32>().prop_map(f32::from_bits).prop_filter("not enormous", |value| value.abs() <= 1e6)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_order_of_uploads_does_not_matter(
            uploads in prop::collection::vec((1usize..60, prop::collection::vec(-10.0f32..10.0, 6)), 5..10),
            keys in prop::collection::vec(any::<u32>(), 10),
        ) {
            let mut order: Vec<usize> = (0..uploads.len()).collect();
            order.sort_by_key(|&k| (keys[k], k));
            let other: Vec<_> = order.iter().map(|&k| uploads[k].clone()).collect();
            for rule in RULES {
                let (a, b) = (combined(rule, &uploads), combined(rule, &other));
                match rule {
                    // Sums of f64 in another order, rounded to f32.
                    Rule::Mean | Rule::Krum { .. } => {
                        let close = a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(1e-3));
                        prop_assert!(close, "{:?}: {:?} and {:?}", rule, a, b);
                    }
                    Rule::Median | Rule::TrimmedMean { .. } => prop_assert_eq!(a, b, "{:?}", rule),
                }
            }
        }

        #[test]
        fn equal_models_come_back_bit_for_bit(
            vector in prop::collection::vec(sane(), 6),
            sizes in prop::collection::vec(1usize..1000, 5..10),
        ) {
            let uploads: Vec<_> = sizes.iter().map(|&size| (size, vector.clone())).collect();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            for rule in RULES {
                prop_assert_eq!(bits(&combined(rule, &uploads)), bits(&vector), "{:?}", rule);
            }
        }
    }
}
