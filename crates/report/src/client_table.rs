//! The clients of a run at its end, as tables of the page.

use std::fmt::Write as _;

use fedelity_record::{ClientReport, ClientsReport, Ranged, Scores, TestedOn};

use crate::cards::clients::{ShownClients, measured_on, reported};
use crate::loaded::LoadedRun;
use crate::page::escape;
use crate::results::Results;

/// A table for each method, of its first counted run; empty without records of clients.
pub(crate) fn client_tables(study: &Results, clients: &ShownClients) -> String {
    let mut out = String::new();
    let mut basis = None;
    for group in &study.groups {
        let Some((run, report)) = reported(group) else { continue };
        basis = basis.or(Some(report.tested_on));
        let open = if out.is_empty() { " open" } else { "" };
        let summary = format!("{}, seed {}, after round {}", group.label, run.header.seed, report.round);
        let _ = write!(out, "<details{open}><summary>{}</summary>", escape(&summary));
        out.push_str(&table(run, report, &clients.listed(run)));
        out.push_str("</details>");
    }
    let Some(basis) = basis else { return out };
    let intervals = "Intervals in parentheses are 95 %. The client's own model is the one after its last training that was \
                     measured, in the round beside it.";
    format!(
        "<section id=client-table><h2>Clients at the end</h2><p class=text>{} {intervals}</p>{out}</section>",
        escape(measured_on(basis))
    )
}

fn table(run: &LoadedRun, report: &ClientsReport, clients: &[usize]) -> String {
    let two = report.positive.is_some();
    let mut heads = vec!["client", "training samples", "test samples"];
    let measures: &[&str] = match (report.tested_on, two) {
        (TestedOn::Common, _) => &["accuracy %"],
        (TestedOn::Own, false) => &["accuracy %", "balanced %", "macro-F1"],
        (TestedOn::Own, true) => &["accuracy %", "AUC", "sensitivity %", "specificity %", "F1"],
    };
    let global: Vec<String> = measures.iter().map(|name| format!("global: {name}")).collect();
    let own: Vec<String> = measures.iter().map(|name| format!("own: {name}")).collect();
    heads.extend(global.iter().chain(&own).map(String::as_str));
    heads.push("own: round");
    let mut out = String::from("<div class=wide><table class=clients><thead><tr>");
    heads.iter().for_each(|head| {
        let _ = write!(out, "<th>{}</th>", escape(head));
    });
    out.push_str("</tr></thead><tbody>");
    for client in clients.iter().filter_map(|&client| report.clients.get(client)) {
        let _ = write!(out, "<tr><th>{}</th>", escape(&run.client_label(client.client as usize)));
        for cell in cells(report, client, measures) {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if let Some(name) = report.positive.and_then(|class| run.header.classes.get(class as usize)) {
        let _ = write!(out, "<p class=note>The class to be found is &#39;{}&#39;.</p>", escape(name));
    }
    let more = report.clients.len().saturating_sub(clients.len());
    if more > 0 {
        let _ = write!(out, "<p class=note>{more} more clients are in clients.json; report --clients shows them.</p>");
    }
    out
}

fn cells(report: &ClientsReport, client: &ClientReport, measures: &[&str]) -> Vec<String> {
    let common = report.tested_on == TestedOn::Common;
    let own = client.own.as_ref();
    let tested = if common { report.common.as_ref() } else { client.global.as_ref() };
    let mut cells = vec![client.samples.to_string(), tested.map_or("-".to_string(), |found| found.samples.to_string())];
    if common {
        cells.extend([client.global_in, own.and_then(|own| own.accuracy_in)].map(|found| plain(found, 100.0, 2)));
    } else {
        for scores in [client.global.as_ref(), own.map(|own| &own.scores)] {
            cells.extend(measures.iter().map(|name| scores.map_or("-".to_string(), |scores| measure(scores, name))));
        }
    }
    cells.push(own.map_or("-".to_string(), |own| own.round.to_string()));
    cells
}

fn measure(scores: &Scores, name: &str) -> String {
    match name {
        "accuracy %" => ranged(scores.accuracy, 100.0, 1),
        "balanced %" => plain(scores.balanced_accuracy, 100.0, 1),
        "macro-F1" => plain(scores.macro_f1, 1.0, 3),
        "AUC" => ranged(scores.auc, 1.0, 3),
        "sensitivity %" => ranged(scores.sensitivity, 100.0, 1),
        "specificity %" => ranged(scores.specificity, 100.0, 1),
        _ => ranged(scores.f1, 1.0, 3),
    }
}

fn plain(found: Option<f64>, scale: f64, digits: usize) -> String {
    found.map_or("-".to_string(), |found| format!("{:.digits$}", scale * found))
}

/// A number and its interval: `83.1 (79.2 to 86.5)`.
pub fn ranged(found: Option<Ranged>, scale: f64, digits: usize) -> String {
    let number = |value: f64| format!("{:.digits$}", scale * value);
    found.map_or("-".to_string(), |found| {
        format!("{} ({} to {})", number(found.value), number(found.low), number(found.high))
    })
}
