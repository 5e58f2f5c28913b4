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
        let summary = format!("{}, seed {}, after round {}", group.title(), run.header.seed, report.round);
        let _ = write!(out, "<details{open}><summary>{}</summary>", escape(&summary));
        out.push_str(&table(run, report, &clients.listed(run)));
        out.push_str("</details>");
    }
    let Some(basis) = basis else { return out };
    let intervals = "Ranges in parentheses are 95 % intervals. The client's own model is the one after its last training \
                     that was measured.";
    format!(
        "<section id=client-table><h2>Clients at the end</h2><p class=text>{} {intervals}</p>{out}</section>",
        escape(measured_on(basis))
    )
}

fn table(run: &LoadedRun, report: &ClientsReport, clients: &[usize]) -> String {
    let measures: &[&str] = match report.positive {
        None => &["accuracy %", "balanced %", "macro-F1"],
        Some(_) => &["accuracy %", "AUC", "sensitivity %", "specificity %", "F1"],
    };
    let weighted: &[&str] = match report.tested_on {
        TestedOn::Common => &["weighted accuracy %"],
        TestedOn::Own => &[],
    };
    let mut out = String::from("<div class=wide><table class=clients><thead><tr>");
    for head in ["client", "training samples", "model", "test samples"].iter().chain(weighted).chain(measures) {
        let _ = write!(out, "<th>{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>");
    for client in clients.iter().filter_map(|&client| report.clients.get(client)) {
        let rows = rows(report, client, measures);
        let _ =
            write!(out, "<tr><th rowspan={}>{}</th>", rows.len(), escape(&run.client_label(client.client as usize)));
        let samples = if client.samples == 0 { "-".to_string() } else { client.samples.to_string() };
        let _ = write!(out, "<td rowspan={}>{samples}</td>", rows.len());
        for (number, row) in rows.iter().enumerate() {
            out.push_str(if number > 0 { "<tr>" } else { "" });
            row.iter().for_each(|cell| {
                let _ = write!(out, "<td>{}</td>", escape(cell));
            });
            out.push_str("</tr>");
        }
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

/// The global model and the client's own, each with its test samples and measures.
fn rows(report: &ClientsReport, client: &ClientReport, measures: &[&str]) -> Vec<Vec<String>> {
    let common = report.tested_on == TestedOn::Common;
    let own = client.own.as_ref();
    let global = if common { report.common.as_ref() } else { client.global.as_ref() };
    let of = |name: String, scores: Option<&Scores>, weighted: Option<f64>| {
        let mut row = vec![name, scores.map_or("-".to_string(), |scores| scores.samples.to_string())];
        row.extend(common.then(|| plain(weighted, 100.0, 1)));
        row.extend(measures.iter().map(|name| scores.map_or("-".to_string(), |scores| measure(scores, name))));
        row
    };
    let mut rows = vec![of(format!("global, round {}", report.round), global, client.global_in)];
    rows.extend(own.map(|own| of(format!("own, round {}", own.round), Some(&own.scores), own.accuracy_in)));
    rows
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
