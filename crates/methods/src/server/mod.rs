//! Server-side settings that go with every method: how uploads become one vector, and how the server steps towards it.
//!
//! [`Composed`] is a method around a method. A [`Rule`] other than the mean decides which uploads count, or what stands
//! for their mean, and a [`ServerOptimizer`] takes the method's new weights as a direction instead of a destination.
//! The method itself, the loops and the clients know nothing of it.

mod config;
mod optimizer;
mod rule;

use std::sync::Arc;

use fedelity_fl::{
    Error, Gather, Local, Method, Needs, Outbox, Payload, Result, Server, Step, Teacher, Terms, Trained, Upload,
};
use fedelity_nn::Params;

pub use config::{OptimizerName, RuleName, ServerConfig, ServerError, ServerSettings};
pub use optimizer::ServerOptimizer;
pub use rule::Rule;

/// A method with a rule and a server optimiser of the user's choice.
///
/// With a rule other than the mean, uploads are held until the round closes; only then does the method fold in those
/// that the rule keeps. An upload with a number that is not finite, anywhere in it, and one that counts nothing in the
/// mean, are never folded in.
#[derive(Debug)]
pub struct Composed {
    inner: Arc<dyn Method>,
    rule: Rule,
    optimizer: ServerOptimizer,
}

impl Composed {
    /// The method with these settings. With the mean and no optimiser, it is the method itself.
    pub fn around(inner: Arc<dyn Method>, rule: Rule, optimizer: ServerOptimizer) -> Arc<dyn Method> {
        if rule == Rule::Mean && optimizer == ServerOptimizer::None {
            return inner;
        }
        Arc::new(Self { inner, rule, optimizer })
    }

    /// Has the method fold in the uploads that the rule keeps.
    fn fold(&self, server: &mut Server<'_>, state: &mut Payload, global: &Params, gather: &mut Gather) -> Result<()> {
        let uploads = std::mem::take(&mut gather.uploads);
        let refuse = |reason| Error::Method { method: self.inner.name(), reason };
        let mut kept = self.rule.choose(&uploads).map_err(refuse)?.into_iter().peekable();
        for (k, upload) in uploads.into_iter().enumerate() {
            if kept.next_if_eq(&k).is_some() {
                self.inner.collect(server, state, global, gather, &upload)?;
                gather.uploads.push(upload);
            } else {
                gather.refused.push(upload.client);
            }
        }
        if gather.mean.added() > 0 {
            let vectors: Vec<&[f32]> = gather.uploads.iter().map(|upload| &*upload.params).collect();
            if let Some(values) = self.rule.estimate(&vectors) {
                // The method may look at the weight of the mean, so the estimate takes its place with that weight.
                let weight = gather.mean.weight();
                gather.mean.clear();
                gather.mean.add(weight, &values)?;
            }
        }
        Ok(())
    }
}

impl Method for Composed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn needs(&self) -> Needs {
        let needs = self.inner.needs();
        Needs { each_upload: needs.each_upload || self.rule != Rule::Mean, ..needs }
    }

    fn init(&self, server: &mut Server<'_>, global: &Params) -> Result<Payload> {
        self.inner.init(server, global)
    }

    fn prepare(&self, server: &mut Server<'_>, state: &mut Payload, global: &Params) -> Result<Payload> {
        self.inner.prepare(server, state, global)
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

    fn collect(
        &self,
        server: &mut Server<'_>,
        state: &mut Payload,
        global: &Params,
        gather: &mut Gather,
        upload: &Upload,
    ) -> Result<()> {
        match self.rule {
            Rule::Mean => self.inner.collect(server, state, global, gather, upload),
            // The engine keeps the upload for `conclude`.
            _ => Ok(()),
        }
    }

    fn conclude(
        &self,
        server: &mut Server<'_>,
        state: &mut Payload,
        global: &Params,
        gather: &mut Gather,
    ) -> Result<Params> {
        if self.rule != Rule::Mean {
            self.fold(server, state, global, gather)?;
        }
        let mut memory = optimizer::Memory::take(state);
        let mut new = self.inner.conclude(server, state, global, gather)?;
        self.optimizer.step(server.model.layout(), &mut memory, global, &mut new);
        memory.put(state);
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;
    use crate::{FedAvg, FedNova, Scaffold};

    fn composed(inner: impl Method + 'static, rule: Rule, optimizer: ServerOptimizer) -> Arc<dyn Method> {
        Composed::around(Arc::new(inner), rule, optimizer)
    }

    const STEP: ServerOptimizer = ServerOptimizer::FedAvgM { lr: 1.0, momentum: 0.0 };

    #[test]
    fn a_full_step_without_momentum_is_the_method_itself() {
        let run = trial::Run { batch_norm: true, ..trial::Run::default() };
        assert_eq!(run.shared(composed(FedAvg {}, Rule::Mean, STEP)), run.global(FedAvg {}));
        assert_eq!(run.shared(composed(Scaffold {}, Rule::Mean, STEP)), run.global(Scaffold {}));
        assert_eq!(run.shared(composed(FedNova {}, Rule::Mean, STEP)), run.global(FedNova {}));
    }

    #[test]
    fn holding_uploads_back_changes_nothing() {
        // A trimmed mean that trims nothing weighs clients alike, so they are made alike.
        let run = trial::Run { sizes: &[20; 6], ..trial::Run::default() };
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
        assert_eq!(error, "the method 'fedavg': the rule 'median' finds no upload with finite numbers among 3");
    }

    #[test]
    fn krum_needs_enough_uploads() {
        let uploads = (0..4).map(|_| trial::upload(4, vec![0.0; 6], Payload::new()));
        let method = composed(FedAvg {}, Rule::Krum { byzantine: 1, keep: 1 }, ServerOptimizer::None);
        let error = trial::try_serve(method, &[0.0; 6], Payload::new(), uploads).unwrap_err().to_string();
        assert_eq!(
            error,
            "the method 'fedavg': the rule 'krum' with byzantine = 1 needs at least 5 uploads a round, and there are 4"
        );
    }

    #[test]
    fn nothing_to_compose_is_the_method_itself() {
        let inner: Arc<dyn Method> = Arc::new(FedAvg {});
        assert!(Arc::ptr_eq(&inner, &Composed::around(inner.clone(), Rule::Mean, ServerOptimizer::None)));
    }

    #[test]
    fn identical_uploads_come_back() {
        let vector = vec![0.1, -3.7e-12, 1e30, -0.0, 7.25, -1e-40];
        let rules = [Rule::Median, Rule::TrimmedMean { trim: 0.25 }, Rule::Krum { byzantine: 1, keep: 2 }];
        for rule in rules {
            let uploads = (0..6).map(|_| trial::upload(3, vector.clone(), Payload::new()));
            let method = composed(FedAvg {}, rule, ServerOptimizer::None);
            let coordinator = trial::serve_shared(method, &[0.5; 6], Payload::new(), uploads);
            assert_eq!(coordinator.global().0, vector, "{rule:?}");
        }
    }
}
