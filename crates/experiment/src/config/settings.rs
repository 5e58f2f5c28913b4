//! A fully checked configuration. Only this reaches a run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use fedelity_fl::{HoldOut, Method, Training, Weighting};
use fedelity_keys::{Context, KeyError, Keys, describe, nearest, read, unknown, write};
use fedelity_methods::{Clip, Composed, Noise, Registry, Rule, registry};
use fedelity_nn::OptimizerKind;
use toml::{Table, Value};

use super::document::Origin;
use super::{BestRound, Config, Document, StepRule};
use crate::error::Result;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub config: Config,
    pub methods: Vec<MethodChoice>,
    /// Decisions that the user may not expect.
    pub notes: Vec<String>,
    /// All keys with their values.
    table: Table,
}

/// A method that is ready to use, and all its keys.
#[derive(Clone, Debug)]
pub struct MethodChoice {
    pub name: &'static str,
    /// Its own keys, with defaults filled in.
    pub keys: Table,
    pub method: Arc<dyn Method>,
}

/// The origins of a document's values.
pub(crate) struct Origins<'a> {
    document: &'a Document,
    notes: Vec<String>,
}

impl<'a> Origins<'a> {
    pub(crate) fn of(document: &'a Document) -> Self {
        Self { document, notes: Vec::new() }
    }
}

impl Context for Origins<'_> {
    /// Drops the file's keys if the command line chose another kind.
    fn leave_out(&mut self, key: &str, selector: &str, chosen: &str) -> bool {
        if self.document.is_from(key, "FEDELITY_DATA") {
            return true;
        }
        let of_file = |path: &str| self.document.origin(path).map(Origin::is_file);
        let left_out = of_file(selector) == Some(false) && of_file(key) == Some(true);
        if left_out {
            self.notes.push(format!("{key} in the file is ignored: {selector} is now {chosen}"));
        }
        left_out
    }

    fn locate(&self, key: &str, path: &str) -> PathBuf {
        self.document.folder_of(key).join(path)
    }
}

impl Settings {
    /// Checks a document; returns the first error.
    pub fn read(document: &Document) -> Result<Self> {
        let mut origins = Origins::of(document);
        let checked = Self::check(document, &mut origins);
        checked.map(|settings| Self { notes: origins.notes, ..settings }).map_err(|error| document.key_error(&error))
    }

    fn check(document: &Document, origins: &mut Origins<'_>) -> Result<Self, KeyError> {
        let given = document.table();
        if document.gives("partition.file")
            && let Some(Value::Table(partition)) = given.get("partition")
            && let Some(key) = partition.keys().find(|key| *key != "file")
        {
            let key = format!("partition.{key}");
            let message = format!("{key}: not allowed together with partition.file, which replaces it");
            return Err(KeyError::new(key, message));
        }
        let (mut config, mut table) = read::<Config>(given, "", origins)?;
        if let Some(seed) = config.seed.take() {
            table.remove("seed");
            table.insert("seeds".to_string(), Value::Array(vec![Value::Integer(seed as i64)]));
            config.seeds = vec![seed];
        }
        if config.data.source.set().is_some_and(|set| set.entry().is_embedded()) {
            // The folder is not used, and the resolved configuration should not name it.
            table.get_mut("data").and_then(Value::as_table_mut).map(|data| data.remove("dir"));
        }
        let shown = || table["seeds"].to_string();
        if config.seeds.is_empty() || config.seeds.iter().collect::<BTreeSet<_>>().len() < config.seeds.len() {
            return Err(KeyError::expected("seeds", shown(), "a list of different whole numbers, such as [1, 2, 3]"));
        }
        if let Some(round) = config.evaluation.confusion.iter().find(|round| **round > config.rounds) {
            let expected = format!("rounds from 1 to {}", config.rounds);
            return Err(KeyError::expected("evaluation.confusion", format!("[..., {round}]"), expected));
        }
        needs_validation(&config)?;
        needs_equal_updates(&config)?;
        let pool = config.partition.clients.or(config.partition.names.as_ref().map(Vec::len));
        let pool = pool.filter(|_| config.partition.file.is_none());
        let methods = methods(given, &config, origins)?;
        let mut settings = Self { config, methods, notes: Vec::new(), table };
        pool.map_or(Ok(0), |pool| settings.settle_per_round(document, pool))?;
        Ok(settings)
    }

    /// The clients' training settings, as the core expects them.
    pub fn training(&self) -> Training {
        let (clients, optimizer) = (&self.config.clients, &self.config.optimizer);
        let (kind, lr, weight_decay) = match optimizer.rule {
            StepRule::Sgd { lr, momentum, weight_decay } => (OptimizerKind::Sgd { momentum }, lr, weight_decay),
            StepRule::Adam { lr, beta1, beta2, eps, weight_decay } => {
                (OptimizerKind::Adam { beta1, beta2, eps }, lr, weight_decay)
            }
        };
        Training {
            epochs: clients.epochs,
            batch: clients.batch,
            optimizer: kind,
            lr,
            weight_decay,
            lr_decay: optimizer.lr_decay,
            clip: optimizer.clip,
            teacher_cache: clients.teacher_cache,
            augmentation: self.config.data.augmentation(),
        }
    }

    /// Clients per round in a pool of this many, at least one. The default is limited to the pool; an explicit larger
    /// number is rejected.
    pub(crate) fn settle_per_round(&mut self, document: &Document, pool: usize) -> Result<usize, KeyError> {
        let clients = &mut self.config.clients;
        if let Some(fraction) = clients.fraction {
            return Ok(((fraction * pool as f64).round() as usize).clamp(1, pool));
        }
        if clients.per_round > pool {
            if document.gives("clients.per-round") {
                let expected = format!("at most {pool}, the number of clients in the partition");
                return Err(KeyError::expected("clients.per-round", clients.per_round, expected));
            }
            clients.per_round = pool;
            if let Some(Value::Table(section)) = self.table.get_mut("clients") {
                section.insert("per-round".to_string(), Value::Integer(pool as i64));
            }
        }
        Ok(clients.per_round)
    }

    /// Drops the keys about texts: the model's file shows that it does not read them.
    pub(crate) fn forget_texts(&mut self) {
        (self.config.model.max_length, self.config.model.vocabulary) = (None, None);
        self.remove("model", &["max-length", "vocabulary"]);
    }

    /// The whole configuration with every default filled in, so that the file alone reproduces the run.
    /// `partition_file` is the name for a partition that was read from a file.
    pub fn resolved(&self, partition_file: &str) -> String {
        self.resolved_for(&self.methods, &self.config.seeds, partition_file, None)
    }

    /// What makes a run the same run: all settings, except how long it is, how many uploads close a round, and where files are.
    pub(crate) fn identity(&self, method: &MethodChoice, seed: u64) -> String {
        let mut same = self.clone();
        same.table.remove("rounds");
        same.remove("server", &["quorum"]);
        same.anywhere().resolved_for(std::slice::from_ref(method), &[seed], "", Some(""))
    }

    /// All settings, except where files are and what `document` leaves to the data and to the file of a model.
    pub(crate) fn of_any_data(&self, document: &Document) -> String {
        let mut same = self.clone();
        if !document.gives("clients.per-round") {
            same.remove("clients", &["per-round"]);
        }
        if self.config.model.file.is_some() {
            same.remove("model", &["max-length", "vocabulary"]);
        }
        same.anywhere().resolved_for(&self.methods, &self.config.seeds, "", Some(""))
    }

    fn anywhere(mut self) -> Self {
        Config::SCHEMA.change_paths(&mut self.table, &|path| path.clear());
        self
    }

    fn remove(&mut self, section: &str, keys: &[&str]) {
        if let Some(Value::Table(section)) = self.table.get_mut(section) {
            keys.iter().for_each(|key| drop(section.remove(*key)));
        }
    }

    /// As [`Self::resolved`], for some of the methods and seeds. `model_file` is the name for a model of one's own, if
    /// it is not that of its file.
    pub fn resolved_for(
        &self,
        methods: &[MethodChoice],
        seeds: &[u64],
        partition_file: &str,
        model_file: Option<&str>,
    ) -> String {
        let mut table = self.table.clone();
        Config::SCHEMA.change_paths(&mut table, &|path| {
            *path = std::path::absolute(&path).map_or_else(|_| path.clone(), |path| path.display().to_string());
        });
        let mut put = |key: &str, value: Value| table.insert(key.to_string(), value);
        put("seeds", Value::Array(seeds.iter().map(|&seed| Value::Integer(seed as i64)).collect()));
        let mut of = methods.iter().map(|method| {
            let mut keys = Table::from_iter([("name".to_string(), Value::String(method.name.to_string()))]);
            keys.extend(method.keys.clone());
            Value::Table(keys)
        });
        let one = if methods.len() == 1 { of.next() } else { None };
        put("method", one.unwrap_or_else(|| Value::Array(of.collect())));
        if self.config.partition.file.is_some() {
            let file = Value::String(partition_file.to_string());
            put("partition", Value::Table(Table::from_iter([("file".to_string(), file)])));
        }
        if let (Some(file), Some(Value::Table(model))) = (model_file, table.get_mut("model"))
            && self.config.model.file.is_some()
        {
            model.insert("file".to_string(), Value::String(file.to_string()));
        }
        if let Some(Value::Table(clients)) = table.get_mut("clients")
            && self.config.clients.fraction.is_some()
        {
            clients.remove("per-round");
        }
        write(Config::SCHEMA, &table)
    }
}

/// Rejects what a validation part is needed for if there is none.
fn needs_validation(config: &Config) -> Result<(), KeyError> {
    if config.server.validation > 0.0 {
        return Ok(());
    }
    let wants = [
        ("stop.patience", config.stop.patience.is_some(), "stopping early"),
        ("evaluation.best", config.evaluation.best == Some(BestRound::Validation), "choosing the best round by it"),
    ];
    match wants.into_iter().find(|(_, wanted, _)| *wanted) {
        Some((key, _, what)) => {
            let message = format!(
                "{key}: {what} needs a validation part: set server.validation, such as server.validation = 0.1"
            );
            Err(KeyError::new(key, message))
        }
        None => Ok(()),
    }
}

/// Rejects noise where single updates are not limited or do not count alike: it would hide less than it says.
fn needs_equal_updates(config: &Config) -> Result<(), KeyError> {
    let (server, key) = (&config.server, "privacy.noise");
    if config.privacy.noise().is_none() {
        return Ok(());
    }
    let message = if server.clip_update.is_none() {
        "needs server.clip-update, the largest norm of an update, which the noise is measured by: set it, such as \
         server.clip-update = 1.0"
            .to_string()
    } else if config.clients.weighting != Weighting::Uniform {
        "needs clients.weighting = \"uniform\": weighted by size, a large client would count for more than the noise hides"
            .to_string()
    } else if server.rule != Rule::Mean {
        let rule = server.rule.name();
        format!("not with server.rule = \"{rule}\": its guarantee is for the mean; set server.rule = \"mean\"")
    } else {
        return Ok(());
    };
    Err(KeyError::new(key, format!("{key}: {message}")))
}

impl Config {
    /// The limit on updates, and the noise that hides them.
    fn clip(&self) -> Option<Clip> {
        let noise = self.privacy.noise().map(|(at, multiplier)| Noise { multiplier, at });
        self.server.clip_update.map(|norm| Clip { norm, noise })
    }

    /// Training samples that clients do not get.
    pub fn hold_out(&self) -> HoldOut {
        HoldOut {
            auxiliary: self.server.auxiliary,
            keep_auxiliary: self.server.auxiliary_keep,
            validation: self.server.validation,
            unlabelled: self.server.unlabelled,
            testing: self.evaluation.held_out,
        }
    }
}

/// `[method]` or a list of `[[method]]`.
fn methods(given: &Table, config: &Config, origins: &mut Origins<'_>) -> Result<Vec<MethodChoice>, KeyError> {
    let none = Table::new();
    let tables: Vec<(String, &Table)> = match given.get("method") {
        None => vec![("method".to_string(), &none)],
        Some(Value::Table(table)) => vec![("method".to_string(), table)],
        Some(Value::Array(items)) if !items.is_empty() && items.iter().all(Value::is_table) => {
            let tables = items.iter().filter_map(Value::as_table).enumerate();
            tables.map(|(i, table)| (format!("method.{i}"), table)).collect()
        }
        Some(other) => {
            let guess = if other.is_str() { format!("; did you mean method.name = {other}?") } else { String::new() };
            let message =
                format!("method: expected a table [method] or tables [[method]], found {}{guess}", describe(other));
            return Err(KeyError::new("method", message));
        }
    };
    let mut methods = Vec::new();
    for (at, table) in tables {
        let MethodChoice { name, keys, method } =
            method(&at, table, origins).map_err(|error| with_method(error, &at, table, origins.document.methods()))?;
        let needs = method.needs();
        let server = &config.server;
        let wants = [
            (needs.auxiliary, server.auxiliary > 0, "labelled samples on the server", "server.auxiliary", "32"),
            (needs.validation, server.validation > 0.0, "validation samples on the server", "server.validation", "0.1"),
            (needs.unlabelled, server.unlabelled > 0, "unlabelled samples on the server", "server.unlabelled", "1000"),
        ];
        if let Some((.., what, key, example)) = wants.into_iter().find(|(needed, given, ..)| *needed && !given) {
            let message = format!("the method '{name}' needs {what}: set {key}, such as {key} = {example}");
            return Err(KeyError::new(format!("{at}.name"), message));
        }
        if needs.projection && !config.model.projection {
            origins.notes.push(format!(
                "{name} was published with a projection head before the classifier; model.projection = true adds it"
            ));
        }
        let method = Composed::around(method, server.rule, server.optimizer, config.clip());
        methods.push(MethodChoice { name, keys, method });
    }
    Ok(methods)
}

/// Names the method in an error about one of several: `method.1 (fedprox).mu`.
fn with_method(error: KeyError, at: &str, table: &Table, methods: &Registry) -> KeyError {
    let entry = table.get("name").and_then(Value::as_str).and_then(|name| methods.find(name));
    match entry.filter(|_| at != "method") {
        Some(entry) => {
            let message = error.message.replace(&format!("{at}."), &format!("{at} ({}).", entry.id));
            KeyError { message, ..error }
        }
        None => error,
    }
}

fn method(at: &str, table: &Table, origins: &mut Origins<'_>) -> Result<MethodChoice, KeyError> {
    let methods = origins.document.methods().clone();
    let names = methods.names();
    let full = format!("{at}.name");
    let name = match table.get("name") {
        None => registry::DEFAULT,
        Some(Value::String(name)) => name.as_str(),
        Some(other) => {
            let message = format!("{full}: expected one of {}, found {}", names.join(", "), describe(other));
            return Err(KeyError::new(full, message));
        }
    };
    let Some(entry) = methods.find(name) else {
        let guess = nearest(name, &names).map_or(".".to_string(), |name| format!("; did you mean '{name}'?"));
        let python = "A method written in Python is known only to a program that has called fedelity.register with it; \
                      Flower's app and sites have the built-in ones only";
        let message = format!("{full} = \"{name}\": expected one of {}{guess} {python}", names.join(", "));
        return Err(KeyError::new(full, message));
    };
    let mut keys = table.clone();
    keys.remove("name");
    // Keys for another method are dropped if the command line chose this one.
    let strangers = keys.keys().filter(|key| entry.schema.key(key).is_none()).cloned().collect::<Vec<String>>();
    for key in strangers {
        let stranger = format!("{at}.{key}");
        if !origins.leave_out(&stranger, &full, name) {
            let names = [&["name"][..], &entry.schema.names()].concat();
            let message = unknown(&stranger, &key, &names, &[], &format!("for {name}"));
            return Err(KeyError::new(stranger, message));
        }
        keys.remove(&key);
    }
    let built = entry.build(&keys, at, origins)?;
    Ok(MethodChoice { name: entry.id, keys: built.keys, method: built.method })
}
