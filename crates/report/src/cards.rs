//! The figures of a report, from the runs of a study.

use std::collections::{BTreeMap, BTreeSet};

use fedelity_record::{FocusRecord, RoundRecord};

use crate::embed::{Embedding, embed};
use crate::figure::{Card, Drawing, Figure, Series};
use crate::source::Run;
use crate::statistics::Summary;
use crate::study::{Group, Study};

/// Columns of a map over rounds, at most; of more rounds, some are shown.
const COLUMNS: usize = 120;
/// Points of a curve, at most.
const POINTS: usize = 600;

/// What a number of a round is.
type Of<'a> = &'a dyn Fn(&RoundRecord) -> Option<f64>;

/// Rounds, and numbers by class in each of them.
type ByClass = (Vec<u64>, Vec<Vec<Option<f64>>>);

/// All cards that there are records for.
pub(crate) fn cards(study: &Study, notes: &mut Vec<String>) -> Vec<Card> {
    let all = [
        accuracy(study),
        forgetting(study),
        holdings(study),
        classes(study),
        at_a_round(study),
        local(study),
        changes(study),
        confusion(study),
        drift(study),
        cost(study),
        terms(study),
        features(study, notes),
    ];
    all.into_iter().flatten().filter(|card| !card.figures.is_empty()).collect()
}

/// A curve of every group, by round.
fn curves(study: &Study, part: &str, faint: bool, of: Of<'_>) -> Vec<Series> {
    let of_group = |(method, group): (usize, &Group)| {
        let mut by_round: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let runs = group.counted();
        for run in &runs {
            for (round, value) in run.curve(of) {
                by_round.entry(round).or_default().push(value);
            }
        }
        // Rounds that only some seeds have would bend the mean.
        let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
        let points = by_round.iter().filter(|(_, values)| values.len() == whole);
        let points = points.map(|(round, values)| point(*round as f64, values)).collect();
        Series { method, part: part.to_string(), faint, points: thin(points, POINTS) }
    };
    study.groups.iter().enumerate().map(of_group).filter(|series| !series.points.is_empty()).collect()
}

fn point(x: f64, values: &[f64]) -> [f64; 4] {
    let found = Summary::of(values);
    let (mean, sd) = found.map_or((0.0, 0.0), |found| (found.mean, found.sd.unwrap_or(0.0)));
    [x, tidy(mean), tidy(mean - sd), tidy(mean + sd)]
}

/// Nine digits after the point are more than any figure shows.
fn tidy(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// Every so many, and the last.
fn thin<T: Clone>(items: Vec<T>, most: usize) -> Vec<T> {
    let step = items.len().div_ceil(most).max(1);
    let last = items.len().saturating_sub(1);
    items.into_iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, item)| item).collect()
}

fn lines(id: &str, title: &str, y: &str, percent: bool, series: Vec<Series>) -> Option<Figure> {
    let drawing = Drawing::Lines { x: "round".to_string(), y: y.to_string(), percent, series };
    let Drawing::Lines { series, .. } = &drawing else { return None };
    (!series.is_empty()).then(|| Figure { id: id.to_string(), title: title.to_string(), drawing })
}

fn card(id: &str, title: &str, text: &str, choice: bool, figures: Vec<Option<Figure>>) -> Option<Card> {
    let figures: Vec<Figure> = figures.into_iter().flatten().collect();
    (!figures.is_empty()).then(|| Card {
        id: id.to_string(),
        title: title.to_string(),
        text: text.to_string(),
        choice,
        figures,
    })
}

fn accuracy(study: &Study) -> Option<Card> {
    let text =
        "The global model on the test set after each round: mean over seeds, the band is one standard deviation.";
    let figures = vec![
        lines("accuracy", "Accuracy", "accuracy", true, curves(study, "", false, &|round| round.accuracy)),
        lines("loss", "Loss", "cross-entropy", false, curves(study, "", false, &|round| round.loss)),
    ];
    card("accuracy", "Accuracy", text, true, figures)
}

fn forgetting(study: &Study) -> Option<Card> {
    let text = "How far class accuracies are below the best they had in earlier rounds, mean over classes; and the cosine \
                of class accuracies from one evaluation to the next.";
    let figures = vec![
        lines("forgetting", "Forgetting", "forgetting", false, curves(study, "", false, &|round| round.forgetting)),
        lines(
            "class-cosine",
            "Class-accuracy cosine",
            "cosine",
            false,
            curves(study, "", false, &|round| round.class_cosine),
        ),
    ];
    card("forgetting", "Forgetting", text, true, figures)
}

fn class_names(study: &Study, classes: usize) -> Vec<String> {
    let named = study.runs().map(|run| &run.header.classes).find(|names| names.len() == classes);
    named.cloned().unwrap_or_else(|| (0..classes).map(|class| class.to_string()).collect())
}

fn holdings(study: &Study) -> Option<Card> {
    let counts = &study.runs().find_map(|run| run.holdings.as_ref())?.counts;
    let classes = counts.first()?.len();
    let high = counts.iter().flatten().copied().max()? as f64;
    let drawing = Drawing::Heat {
        method: None,
        x: "class".to_string(),
        y: "client".to_string(),
        columns: class_names(study, classes),
        rows: (0..counts.len()).map(|client| client.to_string()).collect(),
        cells: counts.iter().map(|row| row.iter().map(|&n| Some(n as f64)).collect()).collect(),
        high,
        percent: false,
    };
    let figure = Figure { id: "holdings".to_string(), title: "Training samples".to_string(), drawing };
    let text = "Training samples by client and class.";
    card("holdings", "Who holds what", text, true, vec![Some(figure)])
}

/// Means over seeds of a vector by class, for the rounds that all counted runs have: `(rounds, [round][class])`.
fn by_class(group: &Group, of: &dyn Fn(&RoundRecord) -> Option<&Vec<Option<f64>>>) -> ByClass {
    let runs = group.counted();
    let mut by_round: BTreeMap<u64, Vec<&Vec<Option<f64>>>> = BTreeMap::new();
    for run in &runs {
        for round in &run.rounds {
            if let Some(found) = of(round) {
                by_round.entry(round.round).or_default().push(found);
            }
        }
    }
    let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
    let rounds: Vec<(u64, Vec<Option<f64>>)> = by_round
        .into_iter()
        .filter(|(_, all)| all.len() == whole)
        .map(|(round, all)| {
            let classes = all.iter().map(|found| found.len()).min().unwrap_or(0);
            let mean = |class: usize| {
                let values: Vec<f64> = all.iter().filter_map(|found| found[class]).collect();
                Summary::of(&values).map(|found| tidy(found.mean))
            };
            (round, (0..classes).map(mean).collect())
        })
        .collect();
    thin(rounds, COLUMNS).into_iter().unzip()
}

fn transposed(rows: &[Vec<Option<f64>>]) -> Vec<Vec<Option<f64>>> {
    let width = rows.iter().map(Vec::len).min().unwrap_or(0);
    (0..width).map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

fn over_rounds(
    study: &Study,
    id: &str,
    high: f64,
    of: &dyn Fn(&RoundRecord) -> Option<&Vec<Option<f64>>>,
) -> Vec<Option<Figure>> {
    let figure = |(method, group): (usize, &Group)| {
        let (rounds, values) = by_class(group, of);
        let classes = values.first()?.len();
        let drawing = Drawing::Heat {
            method: Some(method),
            x: "round".to_string(),
            y: "class".to_string(),
            columns: rounds.iter().map(u64::to_string).collect(),
            rows: class_names(study, classes),
            cells: transposed(&values),
            high,
            percent: true,
        };
        Some(Figure { id: format!("{id}-{method}"), title: group.label.clone(), drawing })
    };
    study.groups.iter().enumerate().map(figure).collect()
}

fn classes(study: &Study) -> Option<Card> {
    let text = "Accuracy of the global model by class and round, mean over seeds. A class that is forgotten shows as a \
                dark stripe.";
    let figures = over_rounds(study, "classes", 1.0, &|round| round.class_accuracy.as_ref());
    card("classes", "Class accuracy over rounds", text, false, figures)
}

fn at_a_round(study: &Study) -> Option<Card> {
    let all: Vec<ByClass> =
        study.groups.iter().map(|group| by_class(group, &|round| round.class_accuracy.as_ref())).collect();
    let common: BTreeSet<u64> = all.first()?.0.iter().copied().collect();
    let common: Vec<u64> =
        common.into_iter().filter(|round| all.iter().all(|(rounds, _)| rounds.contains(round))).collect();
    let classes = all.first()?.1.first()?.len();
    let pick = |(rounds, values): &ByClass| {
        let chosen = rounds.iter().zip(values).filter(|(round, _)| common.contains(round));
        chosen.map(|(_, values)| values.clone()).collect()
    };
    let series = all.iter().map(pick).collect();
    let drawing = Drawing::Classes { classes: class_names(study, classes), rounds: common, series };
    let figure = Figure { id: "class-round".to_string(), title: "Class accuracy at a round".to_string(), drawing };
    let text = "Accuracy of the global model by class at one round, mean over seeds.";
    card("class-round", "Classes at a round", text, true, vec![Some(figure)])
}

fn local(study: &Study) -> Option<Card> {
    let pair = |before: Of<'_>, after: Of<'_>| {
        let mut series = curves(study, "after", false, after);
        series.extend(curves(study, "before", true, before));
        series
    };
    let text = "Local models of the round's clients, before (faint) and after training, on test samples: on all of them, \
                weighted by the client's own classes, and weighted by all the others. What training takes away outside \
                is what clients forget.";
    let measured = study.runs().find_map(|run| run.header.local_evaluation.as_ref());
    let how = measured.filter(|found| found.samples > 0).map_or(String::new(), |found| {
        let every =
            if found.every == 1 { "in every round".to_string() } else { format!("in one of {} rounds", found.every) };
        format!(" Measured on {} of {} test samples, {every}.", found.samples, found.of)
    });
    let of =
        |get: fn(&fedelity_record::LocalRecord) -> Option<f64>| move |round: &RoundRecord| get(round.local.as_ref()?);
    let figures = vec![
        lines(
            "local-out",
            "Outside their own distribution",
            "accuracy",
            true,
            pair(&of(|local| local.out_before), &of(|local| local.out_after)),
        ),
        lines(
            "local-in",
            "On their own distribution",
            "accuracy",
            true,
            pair(&of(|local| local.in_before), &of(|local| local.in_after)),
        ),
        lines(
            "local-all",
            "On the whole test set",
            "accuracy",
            true,
            pair(&of(|local| Some(local.accuracy_before)), &of(|local| Some(local.accuracy.mean))),
        ),
    ];
    card("local", "Local models before and after training", &format!("{text}{how}"), true, figures)
}

fn changes(study: &Study) -> Option<Card> {
    let mean = |values: &[Option<f64>]| {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        Summary::of(&known).map(|found| found.mean)
    };
    let mut series = curves(study, "forgot", false, &|round| mean(&round.local.as_ref()?.class_forgot));
    series.extend(curves(study, "learnt", true, &|round| mean(&round.local.as_ref()?.class_learnt)));
    let mut figures = vec![lines("changes", "All classes", "share of test samples", true, series)];
    let high = study
        .runs()
        .flat_map(|run| &run.rounds)
        .filter_map(|round| round.local.as_ref())
        .flat_map(|local| local.class_forgot.iter().flatten().copied())
        .fold(0.0, f64::max);
    let maps = over_rounds(study, "forgot", high.max(0.01), &|round| Some(&round.local.as_ref()?.class_forgot));
    figures.extend(
        maps.into_iter()
            .map(|map| map.map(|figure| Figure { title: format!("Forgotten by class: {}", figure.title), ..figure })),
    );
    let text = "Test samples that clients predicted right before their training and wrong after it (forgot), and the \
                other way round (learnt, faint): mean over the clients of a round.";
    card("changes", "What clients forget and learn", text, true, figures)
}

fn matrix(id: String, title: String, method: usize, study: &Study, counts: &[Vec<u64>]) -> Option<Figure> {
    let names = class_names(study, counts.len());
    let shares = |row: &Vec<u64>| {
        let total: u64 = row.iter().sum();
        row.iter().map(|&n| (total > 0).then(|| tidy(n as f64 / total as f64))).collect()
    };
    let drawing = Drawing::Heat {
        method: Some(method),
        x: "predicted".to_string(),
        y: "true class".to_string(),
        columns: names.clone(),
        rows: names,
        cells: counts.iter().map(shares).collect(),
        high: 1.0,
        percent: true,
    };
    (!counts.is_empty()).then_some(Figure { id, title, drawing })
}

/// The client that was looked at closely, of the first seed that has one.
fn focus(group: &Group) -> Option<(&Run, u64, &FocusRecord)> {
    group.counted().into_iter().find_map(|run| {
        run.rounds.iter().rev().find_map(|round| Some((run, round.round, round.local.as_ref()?.focus.as_ref()?)))
    })
}

fn confusion(study: &Study) -> Option<Card> {
    let mut figures = Vec::new();
    let mut text = String::from("Predictions by true class, each row as shares.");
    for (method, group) in study.groups.iter().enumerate() {
        let label = &group.label;
        if let Some((run, round, focus)) = focus(group) {
            if method == 0 {
                text.push_str(&format!(
                    " Client {} in round {round} of seed {}: the global model that it received, and its own model after \
                     training.",
                    focus.client, run.header.seed
                ));
            }
            let titled = |when: &str| format!("{label}: client {} {when} training", focus.client);
            figures.push(matrix(format!("confusion-before-{method}"), titled("before"), method, study, &focus.before));
            figures.push(matrix(format!("confusion-after-{method}"), titled("after"), method, study, &focus.after));
        }
        let last = group
            .counted()
            .into_iter()
            .find_map(|run| run.rounds.iter().rev().find_map(|round| Some((round.round, round.confusion.as_ref()?))));
        if let Some((round, counts)) = last {
            let title = format!("{label}: global model after round {round}");
            figures.push(matrix(format!("confusion-global-{method}"), title, method, study, counts));
        }
    }
    card("confusion", "Confusion matrices", &text, false, figures)
}

fn drift(study: &Study) -> Option<Card> {
    let mut figures = vec![
        lines(
            "drift",
            "Drift",
            "distance to the global weights",
            false,
            curves(study, "", false, &|round| round.drift.map(|drift| drift.mean)),
        ),
        lines(
            "gradient-diversity",
            "Gradient diversity",
            "diversity",
            false,
            curves(study, "", false, &|round| round.gradient_diversity),
        ),
    ];
    let layers: BTreeSet<&String> = study
        .runs()
        .flat_map(|run| &run.rounds)
        .filter_map(|round| round.local.as_ref())
        .flat_map(|local| local.alignment.keys())
        .collect();
    for layer in layers {
        let of = |round: &RoundRecord| round.local.as_ref()?.alignment.get(layer).copied();
        let title = format!("Weight alignment of {layer}");
        figures.push(lines(
            &format!("alignment-{layer}"),
            &title,
            "units of the same preference",
            true,
            curves(study, "", false, &of),
        ));
    }
    let text = "How far local weights move from the global ones (mean over clients), how much the clients' changes differ \
                (1: they agree), and how many units keep preferring the same class.";
    card("drift", "Drift", text, true, figures)
}

/// Accuracy over something that adds up from round to round; the mean over seeds of both.
fn against(study: &Study, id: &str, title: &str, x: &str, of: &dyn Fn(&RoundRecord) -> f64) -> Option<Figure> {
    let of_group = |(method, group): (usize, &Group)| {
        let mut by_round: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for run in group.counted() {
            let mut sum = 0.0;
            for round in &run.rounds {
                sum += of(round);
                if let Some(accuracy) = round.accuracy {
                    by_round.entry(round.round).or_default().push((sum, accuracy));
                }
            }
        }
        let whole = by_round.values().map(Vec::len).max().unwrap_or(0);
        let points = by_round.values().filter(|all| all.len() == whole).map(|all| {
            let (spent, accuracies): (Vec<f64>, Vec<f64>) = all.iter().copied().unzip();
            point(tidy(spent.iter().sum::<f64>() / spent.len() as f64), &accuracies)
        });
        Series { method, part: String::new(), faint: false, points: thin(points.collect(), POINTS) }
    };
    let series: Vec<Series> =
        study.groups.iter().enumerate().map(of_group).filter(|series| !series.points.is_empty()).collect();
    let drawing = Drawing::Lines { x: x.to_string(), y: "accuracy".to_string(), percent: true, series: series.clone() };
    (!series.is_empty()).then(|| Figure { id: id.to_string(), title: title.to_string(), drawing })
}

fn cost(study: &Study) -> Option<Card> {
    let figures = vec![
        against(study, "traffic", "Against traffic", "MB both ways", &|round| {
            (round.bytes_down + round.bytes_up) as f64 / 1e6
        }),
        against(study, "time", "Against time", "seconds", &|round| round.seconds.total()),
        lines(
            "teachers",
            "Teachers",
            "samples through teachers for one trained on",
            false,
            curves(study, "", false, &|round| {
                (round.trained_samples > 0).then(|| round.teacher_samples as f64 / round.trained_samples as f64)
            }),
        ),
    ];
    card("cost", "What it costs", "Accuracy against all bytes sent and all time spent so far.", true, figures)
}

fn terms(study: &Study) -> Option<Card> {
    let mut figures =
        vec![lines("train-loss", "All terms", "loss", false, curves(study, "", false, &|round| round.train_loss))];
    let names: BTreeSet<&String> =
        study.runs().flat_map(|run| &run.rounds).flat_map(|round| round.train_terms.keys()).collect();
    for name in names {
        let of = |round: &RoundRecord| round.train_terms.get(name).copied();
        figures.push(lines(&format!("term-{name}"), name, "loss", false, curves(study, "", false, &of)));
    }
    card("terms", "Training loss", "The mean loss of local training, and its terms by name.", true, figures)
}

fn features(study: &Study, notes: &mut Vec<String>) -> Option<Card> {
    let mut figures = Vec::new();
    for (method, group) in study.groups.iter().enumerate() {
        let Some(run) =
            group.counted().into_iter().find(|run| run.path.join(fedelity_record::names::FEATURES).is_file())
        else {
            continue;
        };
        match embed(run) {
            Ok(Embedding { labels, global, local, client, round }) => {
                let classes = labels.iter().max().map_or(0, |most| most + 1).max(run.header.classes.len());
                let figure = |id: &str, title: String, at: &[(f64, f64)]| Figure {
                    id: format!("{id}-{method}"),
                    title,
                    drawing: Drawing::Points {
                        method,
                        classes: class_names(study, classes),
                        points: at.iter().zip(&labels).map(|(&(x, y), &class)| (tidy(x), tidy(y), class)).collect(),
                    },
                };
                let title = format!("{}: global model", group.label);
                figures.push(Some(figure("tsne-global", title, &global)));
                let title = format!("{}: client {client} after round {round}", group.label);
                figures.push(Some(figure("tsne-local", title, &local)));
            }
            Err(reason) => notes.push(format!("{}: features left out: {reason}", run.path.display())),
        }
    }
    let text = "t-SNE of the features of test samples (what the last layer reads), coloured by class.";
    card("features", "Features", text, false, figures)
}
