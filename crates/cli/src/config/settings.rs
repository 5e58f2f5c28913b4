//! Settings: a configuration whose every value has been checked. Only these reach the simulation.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use fedelity_fl::{Training, Weighting};
use fedelity_methods::{Error, registry};
use fedelity_nn::{ModelSpec, OptimizerKind};
use fedelity_sim::{Metrics, Observation};
use toml::{Table, Value};

use super::data::Data;
use super::defaults;
use super::document::{Document, Origin, describe};
use super::model::{self, TextModel};
use super::partition::Source;
use super::section::{Section, nearest, unknown};
use super::server::Server;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rounds: usize,
    pub(crate) seeds: Vec<u64>,
    pub(crate) data: Data,
    pub(crate) partition: Source,
    pub(crate) per_round: PerRound,
    pub(crate) epochs: usize,
    pub(crate) batch: usize,
    pub(crate) weighting: Weighting,
    pub(crate) teacher_cache: bool,
    pub(crate) optimizer: Optimizer,
    pub(crate) model: ModelSpec,
    /// What only a text model has.
    pub(crate) text: Option<TextModel>,
    pub(crate) server: Server,
    pub(crate) methods: Vec<Method>,
    pub(crate) evaluate_every: usize,
    pub(crate) observation: Observation,
    /// What was decided that the user may not expect.
    pub(crate) notes: Vec<String>,
}

/// How many clients take part in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PerRound {
    Count(usize),
    Fraction(f64),
    Default,
}

impl PerRound {
    /// The number for a pool of `clients`, at least one.
    pub(crate) fn of(self, clients: usize) -> usize {
        match self {
            Self::Count(n) => n,
            Self::Fraction(f) => ((f * clients as f64).round() as usize).clamp(1, clients),
            Self::Default => defaults::PER_ROUND.min(clients),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Optimizer {
    pub(crate) rule: Rule,
    pub(crate) lr: f64,
    pub(crate) weight_decay: f64,
    pub(crate) lr_decay: f64,
    pub(crate) clip: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    Sgd { momentum: f64 },
    Adam { beta1: f64, beta2: f64, eps: f64 },
}

/// A method that is ready, and all its keys.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub(crate) name: &'static str,
    /// Its own keys, defaults filled in.
    pub(crate) keys: Table,
    pub(crate) method: Arc<dyn fedelity_fl::Method>,
}

const TOP: &[&str] = &[
    "rounds",
    "seeds",
    "seed",
    "data",
    "partition",
    "clients",
    "optimizer",
    "model",
    "server",
    "method",
    "evaluation",
];
const CLIENTS: &[&str] = &["per-round", "fraction", "epochs", "batch", "weighting", "teacher-cache"];
const OPTIMIZER: &[&str] = &["kind", "lr", "momentum", "weight-decay", "lr-decay", "clip", "beta1", "beta2", "eps"];
const EVALUATION: &[&str] = &["every", "metrics", "confusion", "client"];

impl Settings {
    /// Checks a document, first key to last; the first wrong one is the error.
    pub(crate) fn check(document: &Document) -> Result<Self> {
        let mut notes = Vec::new();
        let top = Section::top(document, TOP)?;
        let evaluation = Section::of(document, "evaluation", EVALUATION)?;
        let clients = Section::of(document, "clients", CLIENTS)?;
        let rounds = top.count("rounds", 1)?.unwrap_or(defaults::ROUNDS);
        let seeds = seeds(&top)?;
        let data = Data::check(document, &mut notes)?;
        let partition = Source::check(document, &mut notes)?;
        let per_round = per_round(&clients, &partition)?;
        let (model, text) = model::check(document, &mut notes)?;
        let server = Server::check(document, &mut notes)?;
        let weighting = clients.choice("weighting", &Weighting::NAMES)?.and_then(Weighting::from_name);
        Ok(Self {
            rounds,
            seeds,
            data,
            partition,
            per_round,
            epochs: clients.count("epochs", 1)?.unwrap_or(defaults::EPOCHS),
            batch: clients.count("batch", 1)?.unwrap_or(defaults::BATCH),
            weighting: weighting.unwrap_or_default(),
            teacher_cache: clients.flag("teacher-cache")?.unwrap_or(defaults::TEACHER_CACHE),
            optimizer: optimizer(document, &mut notes)?,
            methods: methods(document, &model, &server, &mut notes)?,
            model,
            text,
            server,
            evaluate_every: evaluation.count("every", 1)?.unwrap_or(defaults::EVALUATE_EVERY),
            observation: observation(&evaluation, rounds)?,
            notes,
        })
    }
}

impl Settings {
    /// How clients train, as the core takes it.
    pub(crate) fn training(&self) -> Training {
        let optimizer = &self.optimizer;
        Training {
            epochs: self.epochs,
            batch: self.batch,
            optimizer: match optimizer.rule {
                Rule::Sgd { momentum } => OptimizerKind::Sgd { momentum: momentum as f32 },
                Rule::Adam { beta1, beta2, eps } => {
                    OptimizerKind::Adam { beta1: beta1 as f32, beta2: beta2 as f32, eps: eps as f32 }
                }
            },
            lr: optimizer.lr as f32,
            weight_decay: optimizer.weight_decay as f32,
            lr_decay: optimizer.lr_decay as f32,
            clip: optimizer.clip.map(|clip| clip as f32),
            teacher_cache: self.teacher_cache,
            augmentation: self.data.augmentation(),
        }
    }
}

fn seeds(top: &Section<'_>) -> Result<Vec<u64>> {
    if let (Some(seed), Some(_)) = (top.get("seed"), top.get("seeds")) {
        return Err(top.refuse("seed", seed, "seed or seeds, not both"));
    }
    if let Some(seed) = top.whole("seed", 0)? {
        return Ok(vec![seed]);
    }
    let Some(value) = top.get("seeds") else { return Ok(vec![defaults::SEED]) };
    let allowed = "a list of different whole numbers of at least 0, such as [1, 2, 3]";
    let Value::Array(items) = value else { return Err(top.refuse("seeds", value, allowed)) };
    let seeds: Option<Vec<u64>> = items.iter().map(|item| item.as_integer()?.try_into().ok()).collect();
    let distinct = seeds.as_ref().map_or(0, |seeds| seeds.iter().collect::<BTreeSet<_>>().len());
    match seeds {
        Some(seeds) if !seeds.is_empty() && distinct == seeds.len() => Ok(seeds),
        _ => Err(top.refuse("seeds", value, allowed)),
    }
}

fn observation(section: &Section<'_>, rounds: usize) -> Result<Observation> {
    let metrics = section.choice("metrics", &Metrics::NAMES)?.and_then(Metrics::from_name).unwrap_or_default();
    let mut confusion = Vec::new();
    if let Some(value) = section.get("confusion") {
        let allowed = format!("a list of rounds from 1 to {rounds}, such as [1, {rounds}]");
        let Value::Array(items) = value else { return Err(section.refuse("confusion", value, &allowed)) };
        let found: Option<Vec<usize>> = items.iter().map(|item| item.as_integer()?.try_into().ok()).collect();
        let fits = |found: &Vec<usize>| found.iter().all(|round| (1..=rounds).contains(round));
        confusion = found.filter(fits).ok_or_else(|| section.refuse("confusion", value, &allowed))?;
    }
    Ok(Observation { metrics, confusion, client: section.count("client", 0)? })
}

/// Refuses keys that belong to another kind. Where the command line chose the kind, the file's are left out instead.
pub(super) fn refuse_foreign(
    section: &Section<'_>,
    (selector, kind): (&str, &str),
    own: &[&str],
    others: &[&str],
    notes: &mut Vec<String>,
) -> Result<()> {
    let document = section.document;
    for key in others.iter().filter(|key| !own.contains(key) && section.get(key).is_some()) {
        let full = section.full(key);
        if left_out(document, &section.full(selector), &full) {
            notes.push(format!("{full} of the file is left out: {} is now {kind}", section.full(selector)));
            continue;
        }
        let own = if own.is_empty() { "none".to_string() } else { own.join(", ") };
        let message = format!("{full}: not a key of {} = \"{kind}\", whose own keys are {own}", section.full(selector));
        return Err(document.error(&full, message));
    }
    Ok(())
}

/// Whether the command line chose the kind and the file the key that does not belong to it.
pub(super) fn left_out(document: &Document, selector: &str, key: &str) -> bool {
    matches!(document.origin(selector), Some(Origin::Option(_)))
        && matches!(document.origin(key), Some(Origin::File { .. }))
}

fn per_round(clients: &Section<'_>, partition: &Source) -> Result<PerRound> {
    if let (Some(_), Some(fraction)) = (clients.get("per-round"), clients.get("fraction")) {
        return Err(clients.refuse("fraction", fraction, "clients.per-round or clients.fraction, not both"));
    }
    let share = |x: f64| x > 0.0 && x <= 1.0;
    if let Some(fraction) = clients.number("fraction", "a number above 0 and at most 1", share)? {
        return Ok(PerRound::Fraction(fraction));
    }
    let Some(count) = clients.count("per-round", 1)? else { return Ok(PerRound::Default) };
    if let (Some(pool), Some(value)) = (partition.clients(), clients.get("per-round"))
        && count > pool
    {
        return Err(clients.refuse("per-round", value, &at_most(pool)));
    }
    Ok(PerRound::Count(count))
}

/// What is allowed for `clients.per-round` in a pool of clients.
pub(crate) fn at_most(clients: usize) -> String {
    format!("at most {clients}, the number of clients of the partition")
}

fn optimizer(document: &Document, notes: &mut Vec<String>) -> Result<Optimizer> {
    let section = Section::of(document, "optimizer", OPTIMIZER)?;
    let kind = section.choice("kind", &["sgd", "adam"])?.unwrap_or(defaults::OPTIMIZER);
    let own: &[&str] = if kind == "sgd" { &["momentum"] } else { &["beta1", "beta2", "eps"] };
    refuse_foreign(&section, ("kind", kind), own, &["momentum", "beta1", "beta2", "eps"], notes)?;
    // Training computes in f32: a value must be in range there too.
    let positive = |x: f64| (x as f32).is_finite() && x as f32 > 0.0;
    let not_negative = |x: f64| (x as f32).is_finite() && x >= 0.0;
    let below_one = |x: f64| (0.0..1.0).contains(&x) && (x as f32) < 1.0;
    let share = |x: f64| x as f32 > 0.0 && x <= 1.0;
    let number = |key, default: f64, allowed, fits: &dyn Fn(f64) -> bool| -> Result<f64> {
        Ok(section.number(key, allowed, fits)?.unwrap_or(default))
    };
    let above = "a finite number above 0";
    let rule = if kind == "sgd" {
        let allowed = "a number of at least 0 and below 1";
        Rule::Sgd { momentum: number("momentum", defaults::MOMENTUM, allowed, &below_one)? }
    } else {
        let allowed = "a number of at least 0 and below 1";
        Rule::Adam {
            beta1: number("beta1", defaults::BETA1, allowed, &below_one)?,
            beta2: number("beta2", defaults::BETA2, allowed, &below_one)?,
            eps: number("eps", defaults::EPS, above, &positive)?,
        }
    };
    let (lr, decay) = match rule {
        Rule::Sgd { .. } => (defaults::SGD_LR, defaults::WEIGHT_DECAY),
        Rule::Adam { .. } => (defaults::ADAM_LR, defaults::ADAM_WEIGHT_DECAY),
    };
    Ok(Optimizer {
        rule,
        lr: number("lr", lr, above, &positive)?,
        weight_decay: number("weight-decay", decay, "a finite number of at least 0", &not_negative)?,
        lr_decay: number("lr-decay", defaults::LR_DECAY, "a number above 0 and at most 1", &share)?,
        clip: section.number("clip", above, positive)?,
    })
}

/// `[method]` or a list of `[[method]]`. Names and keys are checked against the registry.
fn methods(document: &Document, model: &ModelSpec, server: &Server, notes: &mut Vec<String>) -> Result<Vec<Method>> {
    let none = Table::new();
    let tables: Vec<(String, &Table)> = match document.table().get("method") {
        None => vec![("method".to_string(), &none)],
        Some(Value::Table(table)) => vec![("method".to_string(), table)],
        Some(Value::Array(items)) if !items.is_empty() && items.iter().all(Value::is_table) => {
            let tables = items.iter().filter_map(Value::as_table).enumerate();
            tables.map(|(i, table)| (format!("method.{i}"), table)).collect()
        }
        Some(other) => {
            let message = format!("method: expected a table [method] or tables [[method]], found {}", describe(other));
            return Err(document.error("method", message));
        }
    };
    let mut methods = Vec::new();
    for (path, table) in tables {
        let Method { name, keys, method } = method(document, &path, table, notes)?;
        let needs = method.needs();
        if let Some((what, key, example)) = server.missing(&needs) {
            let message = format!("the method '{name}' needs {what}: set {key}, such as {key} = {example}");
            return Err(document.error(&format!("{path}.name"), message));
        }
        if needs.projection && !model.projection {
            notes.push(format!(
                "{name} was published with a projection head before the classifier; model.projection = true adds it"
            ));
        }
        methods.push(Method { name, keys, method: server.composition.around(method) });
    }
    Ok(methods)
}

fn method(document: &Document, path: &str, table: &Table, notes: &mut Vec<String>) -> Result<Method> {
    let names: Vec<&str> = registry::entries().iter().map(|entry| entry.id).collect();
    let full = format!("{path}.name");
    let name = match table.get("name") {
        None => defaults::METHOD,
        Some(Value::String(name)) => name.as_str(),
        Some(other) => {
            let message = format!("{full}: expected one of {}, found {}", names.join(", "), describe(other));
            return Err(document.error(&full, message));
        }
    };
    let Ok(entry) = registry::find(name) else {
        let guess = nearest(name, &names).map_or(String::new(), |name| format!("; did you mean '{name}'?"));
        let message = format!("{full} = \"{name}\": expected one of {}{guess}", names.join(", "));
        return Err(document.error(&full, message));
    };
    let allowed = entry.keys();
    let mut keys = table.clone();
    keys.remove("name");
    let strangers: Vec<String> = keys.keys().filter(|key| !allowed.contains(&key.as_str())).cloned().collect();
    for key in strangers {
        let at = format!("{path}.{key}");
        if left_out(document, &full, &at) {
            notes.push(format!("{at} of the file is left out: {full} is now {name}"));
            keys.remove(&key);
            continue;
        }
        return Err(document.error(&at, unknown(&at, &key, &allowed, &format!("for {name}"))));
    }
    let built = entry.build(&keys).map_err(|error| match error {
        Error::Type { key, value, reason } => {
            let at = format!("{path}.{key}");
            document.error(&at, format!("{at} = {value}: {reason}"))
        }
        Error::Range { key, value, allowed } => {
            let at = format!("{path}.{key}");
            document.error(&at, format!("{at} = {value}: expected {allowed}"))
        }
        other => document.error(path, other.to_string()),
    })?;
    Ok(Method { name: entry.id, keys: built.settings, method: built.method })
}
