//! Samples per client and class.

use super::{card, class_names, slug};
use crate::figure::{Drawing, Figure, FigureCard};
use crate::loaded::LoadedRun;
use crate::results::Results;

/// Maximum number of partitions that are shown.
const PARTITIONS: usize = 12;

const SCALE: &str = "Colours are on a square-root scale. Where a client has none of a class, there is no colour.";

/// Samples by client and class, whose run, and what the partition is called.
type Named<'a> = (&'a Vec<Vec<u64>>, &'a LoadedRun, String);

/// The partitions of a study, each once.
fn partitions(study: &Results) -> Vec<Named<'_>> {
    let mut found: Vec<Named<'_>> = Vec::new();
    for group in &study.groups {
        let Some(run) = group.runs.iter().find(|run| run.holdings.is_some()) else { continue };
        let Some(held) = &run.holdings else { continue };
        if found.iter().all(|(counts, ..)| **counts != held.counts) {
            let label = study.settings.get(group.setting).map_or("", |setting| setting.label.as_str());
            let name = if label.is_empty() { run.header.partition.clone() } else { label.to_string() };
            found.push((&held.counts, run, name));
        }
    }
    found.truncate(PARTITIONS);
    found
}

pub(super) fn holdings(study: &Results) -> Option<FigureCard> {
    let partitions = partitions(study);
    // One scale for all of them.
    let high = partitions.iter().flat_map(|(counts, ..)| counts.iter().flatten()).copied().max()? as f64;
    let (mut figures, mut taken) = (Vec::new(), Vec::new());
    for (counts, run, name) in &partitions {
        let classes = counts.first().map_or(0, Vec::len);
        let drawing = Drawing::Heat {
            method: None,
            x: "class".to_string(),
            y: "client".to_string(),
            columns: class_names([*run], classes),
            rows: (0..counts.len()).map(|client| run.client_label(client)).collect(),
            cells: counts.iter().map(|row| row.iter().map(|&n| Some(n as f64)).collect()).collect(),
            high,
            percent: false,
        };
        let alone = partitions.len() == 1;
        let id = if alone { "holdings".to_string() } else { format!("holdings-{}", slug(name, &taken)) };
        taken.extend(id.strip_prefix("holdings-").map(String::from));
        let text = format!("Training samples by client and class ({name}). {SCALE}");
        figures.push(Some(Figure { id, title: name.clone(), text, drawing }));
    }
    let text = format!("Training samples by client and class. {SCALE}");
    card("holdings", "Who holds what", &text, false, figures)
}
