//! The clients of a run at its end, as tables of the page.

use std::fmt::Write as _;

use fedelity_record::{ClientReport, ClientsReport, Ranged, Scores, TestedOn};

use crate::cards::clients::{ShownClients, measured_on, reported};
use crate::loaded::LoadedRun;
use crate::page::escape;
use crate::results::Results;

const TRAINED: &str = "training samples";

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
        Some(_) => &["accuracy %", "balanced %", "macro-F1", "AUC", "sensitivity %", "specificity %", "F1"],
    };
    let weighted: &[&str] = match report.tested_on {
        TestedOn::Common => &["weighted accuracy %"],
        TestedOn::Own => &[],
    };
    let heads: Vec<&str> =
        ["client", TRAINED, "model", "test samples"].iter().chain(weighted).chain(measures).copied().collect();
    let mut out = String::from("<div class=wide><table class=clients><thead><tr>");
    for head in &heads {
        let _ = write!(out, "<th>{}</th>", escape(head));
    }
    out.push_str("</tr></thead><tbody>");
    // The cells after the client and its samples.
    let cells =
        |row: &[String]| row.iter().zip(&heads[2..]).map(|(text, head)| cell(head, 1, text)).collect::<String>();
    if let Some(scores) = run.rounds.iter().find(|of| of.round == report.round).and_then(|of| of.scores.as_ref()) {
        let known = report.clients.iter().all(|client| client.samples > 0);
        let trained = known.then(|| report.clients.iter().map(|client| client.samples).sum::<u64>().to_string());
        let trained = cell(TRAINED, 1, &trained.unwrap_or("-".to_string()));
        let row = row(report, format!("global, round {}", report.round), Some(scores), None, measures);
        let _ = write!(out, "<tr class=all><th>all test samples</th>{trained}{}</tr>", cells(&row));
    }
    for client in clients.iter().filter_map(|&client| report.clients.get(client)) {
        let rows = rows(report, client, measures);
        let _ =
            write!(out, "<tr><th rowspan={}>{}</th>", rows.len(), escape(&run.client_label(client.client as usize)));
        let samples = if client.samples == 0 { "-".to_string() } else { client.samples.to_string() };
        out.push_str(&cell(TRAINED, rows.len(), &samples));
        for (number, row) in rows.iter().enumerate() {
            let _ = write!(out, "{}{}</tr>", if number > 0 { "<tr>" } else { "" }, cells(row));
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

/// A cell that knows its heading, for screens too narrow for a table. A line may break before an interval, and not in it.
fn cell(head: &str, rows: usize, text: &str) -> String {
    let head = escape(head).replace(" %", "&nbsp;%");
    let rows = if rows > 1 { format!(" rowspan={rows}") } else { String::new() };
    let text = match text.split_once(" (") {
        Some((number, interval)) => format!("{} ({}", escape(number), escape(interval).replace(' ', "&nbsp;")),
        None => escape(text),
    };
    format!("<td{rows} data-column=\"{head}\">{text}</td>")
}

/// A model with its test samples and measures.
fn row(
    report: &ClientsReport,
    name: String,
    scores: Option<&Scores>,
    weighted: Option<f64>,
    measures: &[&str],
) -> Vec<String> {
    let mut row = vec![name, scores.map_or("-".to_string(), |scores| scores.samples.to_string())];
    row.extend((report.tested_on == TestedOn::Common).then(|| plain(weighted, 100.0, 1)));
    row.extend(measures.iter().map(|name| scores.map_or("-".to_string(), |scores| measure(scores, name))));
    row
}

/// The global model and the client's own.
fn rows(report: &ClientsReport, client: &ClientReport, measures: &[&str]) -> Vec<Vec<String>> {
    let common = report.tested_on == TestedOn::Common;
    let own = client.own.as_ref();
    let global = if common { report.common.as_ref() } else { client.global.as_ref() };
    let of =
        |name: String, scores: Option<&Scores>, weighted: Option<f64>| row(report, name, scores, weighted, measures);
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
