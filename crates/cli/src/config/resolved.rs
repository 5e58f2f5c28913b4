//! Settings written back as TOML, so that the file alone repeats the run.

use std::path::Path;

use fedelity_data::Kind;
use toml::{Table, Value};

use super::settings::{Method, PerRound, Rule, Settings, Source};

impl Settings {
    /// The whole configuration with every default filled in. A partition that was read from a file is named
    /// `partition_file`, relative to the folder of the configuration.
    pub(crate) fn resolved(&self, partition_file: &str) -> String {
        self.resolved_for(&self.methods, &self.seeds, partition_file)
    }

    /// As [`Self::resolved`], for some of the methods and seeds.
    pub(crate) fn resolved_for(&self, methods: &[Method], seeds: &[u64], partition_file: &str) -> String {
        let mut top = Table::new();
        top.insert("rounds".into(), whole(self.rounds));
        let seeds = seeds.iter().map(|&seed| Value::Integer(seed as i64)).collect();
        top.insert("seeds".into(), Value::Array(seeds));
        top.insert("data".into(), Value::Table(self.data()));
        top.insert("partition".into(), Value::Table(self.partition(partition_file)));
        top.insert("clients".into(), Value::Table(self.clients()));
        top.insert("optimizer".into(), Value::Table(self.optimizer()));
        top.insert("model".into(), Value::Table(self.model()));
        let mut methods: Vec<Value> = methods.iter().map(method).collect();
        let methods = if methods.len() == 1 { methods.remove(0) } else { Value::Array(methods) };
        top.insert("method".into(), methods);
        let evaluation = Table::from_iter([("every".to_string(), whole(self.evaluate_every))]);
        top.insert("evaluation".into(), Value::Table(evaluation));
        toml::to_string(&top).expect("a table of plain values can be written as TOML")
    }

    fn data(&self) -> Table {
        let mut table = Table::from_iter([("name".to_string(), text(&self.data.name))]);
        if let Some(dir) = &self.data.dir {
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            table.insert("dir".into(), path(&dir));
        }
        table
    }

    fn partition(&self, file: &str) -> Table {
        let Source::Made { spec, seed } = &self.partition else {
            return Table::from_iter([("file".to_string(), text(file))]);
        };
        let mut table = Table::new();
        table.insert("kind".into(), text(spec.kind.name()));
        table.insert("clients".into(), whole(spec.clients));
        match spec.kind {
            Kind::Dirichlet { alpha, min_size, .. } => {
                table.insert("alpha".into(), Value::Float(alpha));
                table.insert("min-size".into(), whole(min_size));
            }
            Kind::DirichletEqual { alpha, .. } => {
                table.insert("alpha".into(), Value::Float(alpha));
            }
            Kind::Shards { per_client } => {
                table.insert("shards".into(), whole(per_client));
            }
            Kind::LabelsPerClient { labels } => {
                table.insert("labels".into(), whole(labels));
            }
            _ => {}
        }
        table.insert("seed".into(), Value::Integer(*seed as i64));
        table
    }

    fn clients(&self) -> Table {
        let mut table = Table::new();
        match (self.per_round, &self.partition) {
            (PerRound::Count(n), _) => {
                table.insert("per-round".into(), whole(n));
            }
            (PerRound::Fraction(fraction), _) => {
                table.insert("fraction".into(), Value::Float(fraction));
            }
            (PerRound::Default, Source::Made { spec, .. }) => {
                table.insert("per-round".into(), whole(PerRound::Default.of(spec.clients)));
            }
            (PerRound::Default, Source::File(_)) => {}
        }
        table.insert("epochs".into(), whole(self.epochs));
        table.insert("batch".into(), whole(self.batch));
        table.insert("weighting".into(), text(self.weighting.name()));
        table
    }

    fn optimizer(&self) -> Table {
        let optimizer = &self.optimizer;
        let mut table = Table::new();
        let kind = match optimizer.rule {
            Rule::Sgd { .. } => "sgd",
            Rule::Adam { .. } => "adam",
        };
        table.insert("kind".into(), text(kind));
        table.insert("lr".into(), Value::Float(optimizer.lr));
        match optimizer.rule {
            Rule::Sgd { momentum } => {
                table.insert("momentum".into(), Value::Float(momentum));
            }
            Rule::Adam { beta1, beta2, eps } => {
                table.insert("beta1".into(), Value::Float(beta1));
                table.insert("beta2".into(), Value::Float(beta2));
                table.insert("eps".into(), Value::Float(eps));
            }
        }
        table.insert("weight-decay".into(), Value::Float(optimizer.weight_decay));
        table.insert("lr-decay".into(), Value::Float(optimizer.lr_decay));
        if let Some(clip) = optimizer.clip {
            table.insert("clip".into(), Value::Float(clip));
        }
        table
    }

    fn model(&self) -> Table {
        let mut table = Table::from_iter([("name".to_string(), text(&self.model.name))]);
        table.insert("projection".into(), Value::Boolean(self.model.projection));
        table
    }
}

fn method(method: &Method) -> Value {
    let mut table = Table::from_iter([("name".to_string(), text(method.name))]);
    table.extend(method.keys.clone());
    Value::Table(table)
}

fn whole(n: usize) -> Value {
    Value::Integer(n as i64)
}

fn text(text: &str) -> Value {
    Value::String(text.to_string())
}

fn path(path: &Path) -> Value {
    Value::String(path.display().to_string())
}
