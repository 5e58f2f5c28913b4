//! The layout of test samples' features.

use fedelity_record::names;

use super::{card, class_names, slugs, tidy};
use crate::embed::FeatureLayouts;
use crate::figure::{Drawing, Figure, FigureCard};
use crate::loaded::LeftOut;
use crate::results::Results;

pub(super) fn features(
    study: &Results,
    embeddings: &mut FeatureLayouts,
    left_out: &mut Vec<LeftOut>,
) -> Option<FigureCard> {
    let has = |run: &&crate::LoadedRun| run.path.join(names::FEATURES).is_file();
    let (methods, runs): (Vec<usize>, Vec<&crate::LoadedRun>) = study
        .groups
        .iter()
        .enumerate()
        .filter_map(|(method, group)| Some((method, group.counted().into_iter().find(has)?)))
        .unzip();
    let (mut figures, slugs) = (Vec::new(), slugs(study));
    for ((method, run), found) in methods.into_iter().zip(&runs).zip(embeddings.of(&runs)) {
        let label = study.groups[method].title();
        let found = match found {
            None => continue,
            Some(Ok(found)) => found,
            Some(Err(reason)) => {
                left_out.push(LeftOut { path: run.path.clone(), what: format!("features left out: {reason}") });
                continue;
            }
        };
        let classes = found.labels.iter().max().map_or(0, |most| most + 1).max(run.header.classes.len());
        let figure = |id: &str, title: String, whose: &str, at: &[(f64, f64)]| Figure {
            id: format!("{id}-{}", slugs[method]),
            title,
            text: format!(
                "t-SNE of the features of test samples (the inputs of the last layer) in {whose}, coloured by class: {label}, \
                 seed {}.",
                run.header.seed
            ),
            drawing: Drawing::Points {
                method,
                classes: class_names([*run], classes),
                points: at.iter().zip(&found.labels).map(|(&(x, y), &class)| (tidy(x), tidy(y), class)).collect(),
            },
        };
        let global = format!("{label}: global model");
        figures.push(Some(figure("tsne-global", global, "the global model", &found.global)));
        let (client, round) = (run.header.client(found.client as u64), found.round);
        let (title, whose) = (
            format!("{label}: {client} after round {round}"),
            format!("the model of {client} after its training in round {round}"),
        );
        figures.push(Some(figure("tsne-local", title, &whose, &found.local)));
    }
    let text = "t-SNE of the features of test samples (the inputs of the last layer), coloured by class.";
    card("features", "Features", text, false, figures)
}
