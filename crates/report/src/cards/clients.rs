//! Single clients: how good the global model and their own models are for them.

use std::cmp::Reverse;

use fedelity_record::{ClientRecord, ClientsReport, RoundRecord, TestedOn};

use super::curves::{curves, lines};
use super::{card, class_names, slug, slugs, tidy};
use crate::error::ReportError;
use crate::figure::{Drawing, Figure, FigureCard, Series};
use crate::loaded::LoadedRun;
use crate::results::{Group, Results};

/// Maximum clients that are drawn without being asked for: those with most samples.
const DRAWN: usize = 30;
/// Maximum clients of a map or a table without being asked for.
const LISTED: usize = 60;

const CLIENTS_OWN: &str = "the clients' own models after their last measured training";
const EMPTY: &str = " Grey cells have no test samples.";

/// The run whose clients are shown.
fn first(study: &Results) -> Option<&LoadedRun> {
    study.runs().find(|run| run.clients.is_some()).or_else(|| study.runs().find(|run| run.header.clients > 0))
}

/// Whether runs have the same clients.
fn alike(a: &LoadedRun, b: &LoadedRun) -> bool {
    (&a.header.client_names, &a.header.partition_fingerprint)
        == (&b.header.client_names, &b.header.partition_fingerprint)
}

/// Which clients a report shows, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownClients {
    /// Those that are drawn over rounds.
    drawn: Vec<usize>,
    /// Whether they were asked for: then maps and tables have them only.
    asked: bool,
}

impl ShownClients {
    /// The clients of a map or a table: the chosen ones, or the first.
    pub(crate) fn listed(&self, run: &LoadedRun) -> Vec<usize> {
        if self.asked {
            return self.drawn.clone();
        }
        (0..(run.header.clients as usize).min(LISTED)).collect()
    }
}

/// The clients to show, by name or number; by default, those that have names are drawn, up to a number.
pub(crate) fn chosen(study: &Results, wanted: &[String]) -> Result<ShownClients, ReportError> {
    let Some(run) = first(study) else { return Ok(ShownClients::default()) };
    let (names, clients) = (&run.header.client_names, run.header.clients as usize);
    if wanted.is_empty() {
        let samples = |client: &usize| -> u64 {
            run.holdings.as_ref().and_then(|held| held.counts.get(*client)).map_or(0, |counts| counts.iter().sum())
        };
        let mut all: Vec<usize> = (0..names.len()).collect();
        all.sort_by_key(|client| (Reverse(samples(client)), *client));
        all.truncate(DRAWN);
        all.sort_unstable();
        return Ok(ShownClients { drawn: all, asked: false });
    }
    let find = |text: &str| {
        let number = || text.parse::<usize>().ok().filter(|number| *number < clients);
        names.iter().position(|name| name == text).or_else(number)
    };
    let mut found = Vec::new();
    for text in wanted {
        // A name may have a comma.
        let parts = if find(text).is_some() { vec![text.as_str()] } else { text.split(',').map(str::trim).collect() };
        for part in parts {
            let known = || match names.len() {
                0 => format!("clients have no names, and numbers from 0 to {}", clients.saturating_sub(1)),
                n => format!("they are {}{}", names[..n.min(DRAWN)].join(", "), if n > DRAWN { ", ..." } else { "" }),
            };
            let client = find(part).ok_or_else(|| ReportError::Client { name: part.to_string(), known: known() })?;
            if !found.contains(&client) {
                found.push(client);
            }
        }
    }
    Ok(ShownClients { drawn: found, asked: true })
}

/// What accuracies of single clients are measured on.
pub(crate) fn measured_on(tested_on: TestedOn) -> &'static str {
    match tested_on {
        TestedOn::Own => "Accuracy on the test samples of the client's own site.",
        TestedOn::Common => {
            "The test samples do not say which client they belong to, so all clients are tested on the same ones. Weighted \
             accuracy gives each class the weight of its share of the client's training samples."
        }
    }
}

fn local(round: &RoundRecord, client: usize) -> Option<&ClientRecord> {
    round.local.as_ref()?.clients.iter().find(|found| found.client == client as u64)
}

/// One figure per client: accuracy over rounds.
pub(super) fn over_rounds(study: &Results, clients: &ShownClients) -> Option<FigureCard> {
    let run = first(study)?;
    let own_samples = |round: &RoundRecord| {
        let of_clients = round.local.iter().flat_map(|local| &local.clients);
        round.client_accuracy.is_some() || of_clients.into_iter().any(|client| client.own.is_some())
    };
    let own = run.rounds.iter().any(own_samples);
    let same: Vec<bool> = study.groups.iter().map(|group| group.runs.iter().all(|other| alike(run, other))).collect();
    let figure = |&client: &usize| {
        let after = move |round: &RoundRecord| {
            let found = local(round, client)?;
            if own { Some(found.own?.after) } else { found.in_after }
        };
        let global = move |round: &RoundRecord| {
            let tested = round.client_accuracy.as_ref().and_then(|all| *all.get(client)?);
            if own { tested } else { local(round, client)?.in_before }
        };
        let mut series: Vec<Series> = curves(study, "own model", false, &after);
        series.extend(curves(study, "global model", true, &global));
        series.retain(|series| same[series.method]);
        let held = run.holdings.as_ref().and_then(|held| held.counts.get(client));
        let held = held.map_or(String::new(), |counts| {
            let samples: u64 = counts.iter().sum();
            format!(", {samples} training samples")
        });
        let title = format!("{}{held}", run.client_label(client));
        let (on, when) = match own {
            true => ("the test samples of its own site", "after each evaluated round"),
            false => (
                "test samples that are the same for all clients, with each class weighted by its share of the client's \
                 training samples",
                "before that training",
            ),
        };
        let text = format!(
            "Accuracy for {}{held}, on {on}: the client's own model after its training in the rounds that it takes part in, \
             and the global model (dotted) {when}.",
            run.header.client(client as u64)
        );
        lines(&format!("client-{}", slug(&run.client_label(client), &[])), &title, "accuracy", true, series)
            .map(|figure| figure.says(text))
    };
    let mut figures: Vec<Option<Figure>> = clients.drawn.iter().map(figure).collect();
    distinct(&mut figures);
    let absent = clients.drawn.iter().zip(&figures).filter(|(_, figure)| figure.is_none());
    let absent: Vec<String> = absent.map(|(&client, _)| run.client_label(client)).collect();
    let absent =
        if absent.is_empty() { String::new() } else { format!(" Not measured in any round: {}.", absent.join(", ")) };
    let text = format!(
        "{} The client's own model is measured after its training in the rounds that it takes part in; the global model \
         (faint) {}.{absent}",
        measured_on(if own { TestedOn::Own } else { TestedOn::Common }),
        if own { "after every evaluated round" } else { "before that training. The curves are weighted accuracy" }
    );
    card("clients", "Single clients", &text, true, figures)
}

/// Gives figures of clients with similar names different IDs.
fn distinct(figures: &mut [Option<Figure>]) {
    let mut taken: Vec<String> = Vec::new();
    for figure in figures.iter_mut().flatten() {
        figure.id = slug(&figure.id, &taken);
        taken.push(figure.id.clone());
    }
}

/// Per class, the accuracy of the global model and of the clients' own models at the end.
pub(super) fn by_class(study: &Results, clients: &ShownClients) -> Option<FigureCard> {
    let mut figures = Vec::new();
    let mut tested_on = None;
    for ((method, group), slug) in study.groups.iter().enumerate().zip(slugs(study)) {
        let Some((run, report)) = reported(group) else { continue };
        tested_on = tested_on.or(Some(report.tested_on));
        let shown = clients.listed(run);
        let of = |id: &str, title: &str, own: bool| {
            let row = |&client: &usize| {
                let found = report.clients.get(client)?;
                let scores = if own { &found.own.as_ref()?.scores } else { found.global.as_ref()? };
                Some((run.client_label(client), scores.class_accuracy()))
            };
            let mut rows: Vec<(String, Vec<Option<f64>>)> = shown.iter().filter_map(row).collect();
            let common = report.common.as_ref().filter(|_| own && report.tested_on == TestedOn::Common);
            rows.extend(common.map(|scores| ("global model".to_string(), scores.class_accuracy())));
            let (whose, on) = match (own, report.tested_on) {
                (false, _) => ("the global model", "on the test samples of each client's own site"),
                (true, TestedOn::Own) => (CLIENTS_OWN, "on the test samples of each client's own site"),
                (true, TestedOn::Common) => {
                    (CLIENTS_OWN, "on test samples that are the same for all clients; the last row is the global model")
                }
            };
            let empty = if rows.iter().any(|(_, cells)| cells.contains(&None)) { EMPTY } else { "" };
            let text = format!(
                "Accuracy of {whose} by client and class, {on}: {}, seed {}, at the end of round {}.{empty}",
                group.title(),
                run.header.seed,
                report.round
            );
            heat(study, method, (id, title), rows).map(|figure| figure.says(text))
        };
        let label = group.title();
        figures.push(of(&format!("client-classes-global-{slug}"), &format!("{label}: global model"), false));
        figures.push(of(&format!("client-classes-own-{slug}"), &format!("{label}: the clients' own models"), true));
    }
    let text = match tested_on? {
        TestedOn::Own => {
            "Accuracy by client and class at the end of the run, on the test samples of the client's own site: of the global \
             model, and of the client's own model after its last training. Empty cells have no test samples."
        }
        TestedOn::Common => {
            "Accuracy by client and class at the end of the run, on test samples that are the same for all clients: of the \
             client's own model after its last training, and of the global model in the last row."
        }
    };
    card("client-classes", "Clients by class", text, true, figures)
}

/// The first counted run with results of its clients.
pub(crate) fn reported(group: &Group) -> Option<(&LoadedRun, &ClientsReport)> {
    group.counted().into_iter().find_map(|run| Some((run, run.clients.as_ref()?)))
}

fn heat(
    study: &Results,
    method: usize,
    (id, title): (&str, &str),
    rows: Vec<(String, Vec<Option<f64>>)>,
) -> Option<Figure> {
    let classes = rows.iter().map(|(_, cells)| cells.len()).max().filter(|&classes| classes > 0)?;
    let (names, cells): (Vec<String>, Vec<Vec<Option<f64>>>) = rows.into_iter().unzip();
    let cells = cells.into_iter().map(|row| row.into_iter().map(|cell| cell.map(tidy)).collect()).collect();
    let drawing = Drawing::Heat {
        method: Some(method),
        x: "class".to_string(),
        y: "clients".to_string(),
        columns: class_names(&study.groups[method].runs, classes),
        rows: names,
        cells,
        high: 1.0,
        percent: true,
    };
    Some(Figure { id: id.to_string(), title: title.to_string(), text: String::new(), drawing })
}
