//! FedDistill+: the label-wise logits of Seo, Park, Oh, Bennis, Kim, "Federated Knowledge Distillation", 2020,
//! arXiv:2011.02367, with the averaging of weights that Yao et al. (FedGKD, arXiv:2107.00051, section 5) add to it.
//!
//!   min_w  F_k(w) + c / n_k * sum_i KL( softmax(G_k[y_i]) || softmax(h(w, x_i)) ),
//!   G_k[y] = mean over the other clients j that have reported y of  (mean of j's logits on its samples of class y)
//!
//! What the others answer on average to a class tells a client how classes resemble each other, also those it has no
//! sample of.
//!
//! While it trains, a client adds up its logits by true class. It sends the mean for every class it has seen (`logits`)
//! and which classes these are (`classes-held`): K^2 + K numbers. The server keeps the last ones of every client and
//! sends their sums, K^2 + K numbers again: for every class the sum of the means and how many clients have reported it.
//! A client remembers what it sent last and takes it out of the sums. That gives the leave-one-out mean without a
//! message of its own for every client, for K numbers more on the way down than a table of means has.
//!
//! Deviations, all because the released codes do not exchange what the text describes:
//! - The table is a mean over other clients only, as in the code of Yao et al.; the code of Zhu et al. (FedGen) keeps
//!   the own one in.
//! - Sums and counts start at 0 and anew every round. A class nobody else has reported has no row, and its samples have
//!   no such term; the released codes teach them zeros, that is, the uniform distribution.
//! - Clients send means with a flag, not sums with counts: which classes they hold leaves them, how many samples of
//!   each does not.
//! - There is no term in round 1, when nobody has reported anything.

use fedelity_fl::{Gather, Local, Method, Needs, Outbox, Payload, Result, Server, Step, Terms, Trained, Upload};
use fedelity_nn::Params;
use fedelity_nn::loss::{self, Kl};
use serde::{Deserialize, Serialize};

use crate::error::Range;
use crate::registry::{AtZero, Entry, Hyper, Identity, Parameter};

/// FedDistill+.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FedDistillPlus {
    /// c, 0 or more: the factor on the distance. Yao et al. take 0.1. 0 is FedAvg, and nothing extra travels.
    pub coefficient: f64,
    /// The temperature of both softmaxes, above 0. 1 in the released codes.
    pub temperature: f64,
    /// Teach the uniform distribution instead of what others report, and exchange nothing. This is what the released
    /// code of Yao et al. does by mistake; it serves to compare with their column.
    pub uniform_teacher: bool,
}

impl Default for FedDistillPlus {
    fn default() -> Self {
        Self { coefficient: 0.1, temperature: 1.0, uniform_teacher: false }
    }
}

impl FedDistillPlus {
    fn exchanges(&self) -> bool {
        self.coefficient != 0.0 && !self.uniform_teacher
    }

    /// c * KL to the row of each sample's label, for labels that have a row; adds its gradient.
    fn distance(&self, z: &[f32], labels: &[u16], table: &mut Table, d_z: &mut [f32]) -> f32 {
        let classes = table.has.len();
        table.weights.clear();
        table.weights.extend(labels.iter().map(|&label| if table.has[usize::from(label)] { 1.0 } else { 0.0 }));
        let (weight, tau) = (self.coefficient as f32, self.temperature as f32);
        let (weights, rows) = (Some(&table.weights[..]), Some(labels));
        loss::kl(z, &table.rows, classes, &Kl { weight, tau, tau_squared: true, weights, rows, ..Kl::default() }, d_z)
    }
}

/// What others answer on average, by true class.
#[derive(Debug, Default)]
struct Table {
    /// `[class][class]`.
    rows: Vec<f32>,
    /// Whether a class has a row.
    has: Vec<bool>,
    /// Scratch: the weight of each sample of a batch.
    weights: Vec<f32>,
}

impl Table {
    /// The mean over all clients but one: `sums` over all, `own` what that one has put in.
    fn without(sums: Report<'_>, own: Option<Report<'_>>) -> Self {
        let classes = sums.held.len();
        let others = |y: usize| sums.held[y] - own.map_or(0.0, |own| own.held[y]);
        let sum = |i: usize| sums.logits[i] - own.map_or(0.0, |own| own.logits[i]);
        // Numbers of clients are whole numbers, exact in f32.
        let has: Vec<bool> = (0..classes).map(|y| others(y) >= 1.0).collect();
        let row = |i: usize| if has[i / classes] { sum(i) / others(i / classes) } else { 0.0 };
        Self { rows: (0..classes * classes).map(row).collect(), has, weights: Vec::new() }
    }

    /// Zeros for every class: the uniform distribution.
    fn uniform(classes: usize) -> Self {
        Self { rows: vec![0.0; classes * classes], has: vec![true; classes], weights: Vec::new() }
    }
}

/// What a client reports, or the sums of what all have reported.
#[derive(Clone, Copy, Debug)]
struct Report<'a> {
    /// Means of logits by true class, `[class][class]`; zeros for a class that the client does not hold.
    logits: &'a [f32],
    /// By class: 1 if the client holds it, else 0. In the sums, how many clients do.
    held: &'a [f32],
}

impl<'a> Report<'a> {
    fn of(payload: &'a Payload, classes: usize) -> Result<Option<Self>> {
        if payload.opt(LOGITS).is_none() {
            return Ok(None);
        }
        let (logits, held) = (payload.get_sized(LOGITS, classes * classes)?, payload.get_sized(HELD, classes)?);
        Ok(Some(Self { logits, held }))
    }

    /// Both arrays by name.
    fn payload(logits: Vec<f32>, held: Vec<f32>) -> Payload {
        Payload::new().with(LOGITS, logits).with(HELD, held)
    }
}

/// What a client holds while it trains.
#[derive(Debug)]
struct Tracker {
    /// The sum of logits by true class, `[class][class]`.
    sums: Vec<f64>,
    /// How many samples of a class were seen.
    seen: Vec<u64>,
    /// The teacher, once somebody has reported something.
    table: Option<Table>,
}

impl Tracker {
    fn new(classes: usize, table: Option<Table>) -> Self {
        Self { sums: vec![0.0; classes * classes], seen: vec![0; classes], table }
    }

    fn add(&mut self, z: &[f32], labels: &[u16]) {
        let classes = self.seen.len();
        for (z, &label) in z.chunks_exact(classes).zip(labels) {
            let label = usize::from(label);
            self.seen[label] += 1;
            self.sums[label * classes..][..classes].iter_mut().zip(z).for_each(|(sum, &z)| *sum += f64::from(z));
        }
    }

    fn report(&self) -> Payload {
        let classes = self.seen.len();
        let mean = |(i, sum): (usize, &f64)| (sum / self.seen[i / classes].max(1) as f64) as f32;
        let held = self.seen.iter().map(|&n| if n > 0 { 1.0 } else { 0.0 });
        Report::payload(self.sums.iter().enumerate().map(mean).collect(), held.collect())
    }
}

/// The arrays of a report, on the wire and in a client's memory.
const LOGITS: &str = "logits";
const HELD: &str = "classes-held";
/// How the names of clients' last reports begin in the server's state: their logits, then the classes they hold.
const REPORT: &str = "client-";

impl Method for FedDistillPlus {
    fn name(&self) -> &'static str {
        "feddistill-plus"
    }

    fn needs(&self) -> Needs {
        Needs { client_memory: self.exchanges(), ..Needs::default() }
    }

    fn prepare(&self, server: &mut Server<'_>, state: &mut Payload, _: &Params) -> Result<Payload> {
        // The state may hold more than reports: a server optimiser keeps its memory there too.
        let mut reports = state.iter().filter(|(name, _)| name.starts_with(REPORT)).peekable();
        if reports.peek().is_none() {
            return Ok(Payload::new());
        }
        let classes = server.model.classes();
        let mut sums = vec![0.0; classes * classes + classes];
        for (_, report) in reports {
            sums.iter_mut().zip(report.iter()).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        let mut sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
        let held = sums.split_off(classes * classes);
        Ok(Report::payload(sums, held))
    }

    fn loss(&self, local: &mut Local<'_>, step: &mut Step<'_>) -> Result<Terms> {
        let ce = loss::cross_entropy(step.student.logits, step.labels, step.classes, 1.0, step.d_logits);
        if self.coefficient == 0.0 {
            return Ok(Terms::of("ce", ce));
        }
        let classes = step.classes;
        let (sums, own) = (Report::of(local.down, classes)?, Report::of(local.memory, classes)?);
        let tracker = local.scratch.typed(|| {
            let table = if self.uniform_teacher {
                (local.round > 0).then(|| Table::uniform(classes))
            } else {
                sums.map(|sums| Table::without(sums, own))
            };
            Tracker::new(classes, table)
        });
        tracker.add(step.student.logits, step.labels);
        let Some(table) = &mut tracker.table else { return Ok(Terms::of("ce", ce)) };
        let kd = self.distance(step.student.logits, step.labels, table, step.d_logits);
        Ok(Terms::of("ce", ce).with("kd", kd))
    }

    fn finish(&self, local: &mut Local<'_>, _: &mut Trained<'_>) -> Result<Outbox> {
        if !self.exchanges() {
            return Ok(Outbox::default());
        }
        let classes = local.model.classes();
        let upload = local.scratch.typed(|| Tracker::new(classes, None)).report();
        Ok(Outbox { memory: upload.clone(), upload })
    }

    fn collect(
        &self,
        server: &mut Server<'_>,
        state: &mut Payload,
        _: &Params,
        gather: &mut Gather,
        upload: &Upload,
    ) -> Result<()> {
        if let Some(report) = Report::of(&upload.extra, server.model.classes())? {
            // Padded, so that the order of names is the order of clients.
            state.put(format!("{REPORT}{:010}", upload.client), [report.logits, report.held].concat());
        }
        gather.mean.add(upload.weight, &upload.params)
    }
}

impl Hyper for FedDistillPlus {
    const ENTRY: Entry = Entry::new::<Self>(
        "feddistill-plus",
        "Stay near what the other clients answer on average to a sample's class.",
        "Seo et al., 2020, arXiv:2011.02367, with averaged weights as in arXiv:2107.00051",
        "L = CE + c * KL(softmax(G[y]) || softmax(z)), G[y] = mean logits of the other clients on class y",
        Identity::KeysAtZero,
        &[
            Parameter {
                name: "coefficient",
                symbol: "c",
                summary: "factor on the distance to the others' mean logits of the class",
                default: "0.1",
                range: "0 or more",
                paper: "0.1 (FedGKD paper)",
                at_zero: AtZero::FedAvg,
            },
            Parameter {
                name: "temperature",
                symbol: "tau",
                summary: "temperature of both softmaxes, with a factor tau^2",
                default: "1.0",
                range: "above 0",
                paper: "1",
                at_zero: AtZero::Refused,
            },
            Parameter {
                name: "uniform-teacher",
                symbol: "",
                summary: "teach the uniform distribution, as the code of the FedGKD paper does by mistake",
                default: "false",
                range: "true, false",
                paper: "",
                at_zero: AtZero::None,
            },
        ],
    );

    fn check(&self) -> Result<(), Range> {
        let (c, tau) = (self.coefficient, self.temperature);
        Range::check("coefficient", c, c.is_finite() && c >= 0.0, "a finite number 0 or more")?;
        Range::check("temperature", tau, tau.is_finite() && tau > 0.0, "a finite number above 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two clients and two classes; client 0 holds both classes, client 1 only the first.
    #[test]
    fn the_own_contribution_is_taken_out() {
        let mut first = Tracker::new(2, None);
        first.add(&[1.0, 3.0, 3.0, 5.0, -1.0, 7.0], &[0, 0, 1]);
        let mut second = Tracker::new(2, None);
        second.add(&[10.0, 20.0], &[0]);
        let (first, second) = (first.report(), second.report());
        assert_eq!(first, Report::payload(vec![2.0, 4.0, -1.0, 7.0], vec![1.0, 1.0]));
        assert_eq!(second, Report::payload(vec![10.0, 20.0, 0.0, 0.0], vec![1.0, 0.0]));
        let sums = Report::payload(vec![12.0, 24.0, -1.0, 7.0], vec![2.0, 1.0]);
        fn of(payload: &Payload) -> Report<'_> {
            Report::of(payload, 2).unwrap().unwrap()
        }

        let table = Table::without(of(&sums), Some(of(&first)));
        assert_eq!((table.rows, table.has), (vec![10.0, 20.0, 0.0, 0.0], vec![true, false]));
        let table = Table::without(of(&sums), Some(of(&second)));
        assert_eq!((table.rows, table.has), (vec![2.0, 4.0, -1.0, 7.0], vec![true, true]));
        // Somebody who has not reported yet sees the mean of both, by class over those who have it.
        let table = Table::without(of(&sums), None);
        assert_eq!((table.rows, table.has), (vec![6.0, 12.0, -1.0, 7.0], vec![true, true]));
        // Alone: nothing to learn from, no term, no gradient.
        let mut table = Table::without(of(&first), Some(of(&first)));
        assert_eq!(table.has, [false, false]);
        let mut d_z = [0.0; 2];
        assert_eq!(FedDistillPlus::default().distance(&[80.0, -80.0], &[1], &mut table, &mut d_z), 0.0);
        assert_eq!(d_z, [0.0; 2]);
    }

    #[test]
    fn a_uniform_teacher_smooths_labels() {
        let method = FedDistillPlus::default();
        let mut d_z = [0.0; 3];
        let found = method.distance(&[0.0, 0.0, 0.0], &[2], &mut Table::uniform(3), &mut d_z);
        assert_eq!((found, d_z), (0.0, [0.0; 3]));
        assert!(method.distance(&[80.0, 0.0, -80.0], &[2], &mut Table::uniform(3), &mut d_z) > 1.0);
    }
}
