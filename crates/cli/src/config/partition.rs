//! `[partition]`: who holds which samples.

use std::path::PathBuf;

use anyhow::Result;
use fedelity_data::{Kind, Spec, partition};
use toml::Value;

use super::defaults;
use super::document::Document;
use super::section::Section;
use super::settings::refuse_foreign;

/// Where the partition comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Made {
        spec: Spec,
        seed: u64,
    },
    /// By natural keys: in groups, or one client per key.
    Natural {
        clients: Option<usize>,
        seed: u64,
    },
    File(PathBuf),
}

const PARTITION: &[&str] = &["kind", "clients", "alpha", "min-size", "shards", "labels", "seed", "file"];

impl Source {
    pub(crate) fn check(document: &Document, notes: &mut Vec<String>) -> Result<Self> {
        let section = Section::of(document, "partition", PARTITION)?;
        if let Some(file) = section.text("file", "the path of a partition file")? {
            if let Some(key) = PARTITION.iter().find(|key| **key != "file" && section.get(key).is_some()) {
                let message = format!("partition.{key}: not allowed beside partition.file, which says it all");
                return Err(document.error(&section.full(key), message));
            }
            return Ok(Self::File(document.folder_of("partition.file").join(file)));
        }
        let kind = section.choice("kind", &Kind::NAMES)?.unwrap_or(defaults::PARTITION);
        let own: &[&str] = match kind {
            "dirichlet" => &["alpha", "min-size"],
            "dirichlet-equal" => &["alpha"],
            "shards" => &["shards"],
            "labels-per-client" => &["labels"],
            _ => &[],
        };
        let others = ["alpha", "min-size", "shards", "labels"];
        refuse_foreign(&section, ("kind", kind), own, &others, notes)?;
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let alpha = section.number("alpha", "a finite number above 0", positive)?.unwrap_or(defaults::ALPHA);
        let min_size = section.count("min-size", 0)?.unwrap_or(defaults::MIN_SIZE);
        let shards = section.count("shards", 1)?.unwrap_or(defaults::SHARDS);
        let labels = section.count("labels", 1)?.unwrap_or(defaults::LABELS);
        let clients = section.count("clients", 1)?;
        let seed = section.whole("seed", 0)?.unwrap_or(defaults::PARTITION_SEED);
        let kind = match kind {
            "dirichlet" => Kind::Dirichlet { alpha, min_size, max_draws: partition::DEFAULT_MAX_DRAWS },
            "dirichlet-equal" => Kind::dirichlet_equal(alpha),
            "shards" => Kind::Shards { per_client: shards },
            "labels-per-client" => Kind::LabelsPerClient { labels },
            "natural" => return Ok(Self::Natural { clients, seed }),
            _ => Kind::Iid,
        };
        Ok(Self::Made { spec: Spec { kind, clients: clients.unwrap_or(defaults::CLIENTS) }, seed })
    }

    /// The number of clients, where it is known before the data are read.
    pub(crate) fn clients(&self) -> Option<usize> {
        match self {
            Self::Made { spec, .. } => Some(spec.clients),
            Self::Natural { clients, .. } => *clients,
            Self::File(_) => None,
        }
    }

    /// Keys and values, as a configuration writes them.
    pub(crate) fn pairs(&self, file: &str) -> Vec<(String, Value)> {
        let text = |text: &str| Value::String(text.to_string());
        let whole = |n: usize| Value::Integer(n as i64);
        let pairs = match self {
            Self::File(_) => vec![("file", text(file))],
            Self::Natural { clients, seed } => {
                let mut pairs = vec![("kind", text(Kind::Natural.name()))];
                pairs.extend(clients.map(|clients| ("clients", whole(clients))));
                pairs.push(("seed", Value::Integer(*seed as i64)));
                pairs
            }
            Self::Made { spec, seed } => {
                let mut pairs = vec![("kind", text(spec.kind.name())), ("clients", whole(spec.clients))];
                match spec.kind {
                    Kind::Dirichlet { alpha, min_size, .. } => {
                        pairs.extend([("alpha", Value::Float(alpha)), ("min-size", whole(min_size))]);
                    }
                    Kind::DirichletEqual { alpha, .. } => pairs.push(("alpha", Value::Float(alpha))),
                    Kind::Shards { per_client } => pairs.push(("shards", whole(per_client))),
                    Kind::LabelsPerClient { labels } => pairs.push(("labels", whole(labels))),
                    _ => {}
                }
                pairs.push(("seed", Value::Integer(*seed as i64)));
                pairs
            }
        };
        pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}
