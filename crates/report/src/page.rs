//! A self-contained page: no other files, no network.

use std::fmt::Write as _;

use fedelity_record::{ChosenBy, Status};
use serde::Serialize;

use crate::cards::cards;
use crate::cards::clients::chosen;
use crate::client_table::client_tables;
use crate::compare::{Comparison, ComparisonRow, Options};
use crate::embed::FeatureLayouts;
use crate::error::ReportError;
use crate::figure::{FigureCard, MethodStyle, styles};
use crate::loaded::{LeftOut, LoadedRun};
use crate::mark::REMEDY;
use crate::results::{Group, Results};
use crate::statistics::MeanSd;
use crate::table::spread;

const PAGE: &str = include_str!("../assets/page.html");
const STYLES: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const CHARTS: &str = include_str!("../assets/echarts/charts.min.js");

/// The line of [`PAGE`] that every page has near its start.
const MARK: &str = "<meta name=\"generator\" content=\"Fedelity\">";

/// Whether a file that starts like this is a page of ours.
pub fn is_report_page(start: &[u8]) -> bool {
    start.windows(MARK.len()).any(|part| part == MARK.as_bytes())
}

/// A report: the contents of the page and its figures.
#[derive(Clone, Debug)]
pub struct ReportPage {
    pub methods: Vec<MethodStyle>,
    pub cards: Vec<FigureCard>,
    pub comparison: Comparison,
    setting: String,
    environment: Vec<(String, String)>,
    commands: Vec<String>,
    configurations: Vec<(String, String)>,
    /// What the runs noticed about themselves.
    notices: Vec<String>,
    /// Tables of the clients, as HTML; empty if nothing is known about them.
    clients: String,
    pub left_out: Vec<LeftOut>,
}

/// The part that the page's script reads.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct PageData<'a> {
    methods: &'a [MethodStyle],
    cards: &'a [FigureCard],
    live: bool,
}

impl ReportPage {
    /// A report on the runs of a study. Several settings are shown together, and compared separately.
    pub fn new(study: &Results, baseline: Option<String>) -> Result<Self, ReportError> {
        Self::with(study, baseline, &mut FeatureLayouts::default())
    }

    /// The same, with these clients drawn, by name or number.
    pub fn of_clients(study: &Results, baseline: Option<String>, clients: &[String]) -> Result<Self, ReportError> {
        Self::build(study, baseline, clients, &mut FeatureLayouts::default())
    }

    /// The same, reusing the layouts of an earlier report.
    pub fn with(
        study: &Results,
        baseline: Option<String>,
        embeddings: &mut FeatureLayouts,
    ) -> Result<Self, ReportError> {
        Self::build(study, baseline, &[], embeddings)
    }

    fn build(
        study: &Results,
        baseline: Option<String>,
        clients: &[String],
        embeddings: &mut FeatureLayouts,
    ) -> Result<Self, ReportError> {
        let clients = chosen(study, clients)?;
        let comparison = Comparison::new(study, &Options { baseline, ..Options::default() })?;
        let labels: Vec<&str> = study.groups.iter().map(|group| group.label.as_str()).collect();
        let mut left_out = study.left_out.clone();
        let cards = cards(study, &clients, embeddings, &mut left_out);
        Ok(Self {
            methods: styles(&labels),
            cards,
            setting: setting(study),
            environment: environment(study),
            commands: commands(study),
            configurations: configurations(study),
            notices: notices(study),
            clients: client_tables(study, &clients),
            left_out,
            comparison,
        })
    }

    /// The page. A live one polls its server for updates.
    pub fn html(&self, live: bool) -> String {
        let labels: Vec<&str> = self.methods.iter().map(|method| method.label.as_str()).collect();
        let data = PageData { methods: &self.methods, cards: &self.cards, live };
        page(&format!("Fedelity: {}", labels.join(", ")), self.body(live), &data)
    }

    /// What a live page fetches: a version of this state, the text and the figures.
    pub fn news(&self, version: &str) -> String {
        let data = PageData { methods: &self.methods, cards: &self.cards, live: true };
        news(version, &self.body(true), &data)
    }

    /// The page without its figures. A live page does not mention that a run is unfinished.
    fn body(&self, live: bool) -> String {
        let mut out = String::new();
        let _ = write!(out, "<p class=setting>{}</p>", escape(&self.setting));
        out.push_str(&self.table());
        for note in &self.comparison.notes {
            let _ = write!(out, "<p class=note>{}</p>", escape(note));
        }
        for note in &self.comparison.footnotes {
            let _ = write!(out, "<p class=note>{}</p>", escape(note));
        }
        if !self.notices.is_empty() {
            out.push_str("<details open class=warning><summary>What was noticed</summary><ul>");
            for notice in &self.notices {
                let _ = write!(out, "<li>{}</li>", escape(notice));
            }
            let _ = write!(out, "</ul><p>{}</p></details>", escape(REMEDY));
        }
        if !self.left_out.is_empty() {
            let open = if live { "" } else { " open" };
            let _ = write!(out, "<details{open} class=warning><summary>What was left out</summary><ul>");
            for LeftOut { path, what } in &self.left_out {
                let _ = write!(out, "<li>{}: {}</li>", escape(&path.display().to_string()), escape(what));
            }
            out.push_str("</ul></details>");
        }
        out.push_str("<div id=methods></div><div id=cards></div>");
        out.push_str(&self.clients);
        out.push_str("<section><h2>How to reproduce it</h2><table class=facts>");
        for (what, value) in &self.environment {
            let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(what), escape(value));
        }
        out.push_str("</table><pre>");
        for command in &self.commands {
            let _ = writeln!(out, "{}", escape(command));
        }
        out.push_str("</pre>");
        for (whose, text) in &self.configurations {
            let _ = write!(out, "<details><summary>{}</summary><pre>{}</pre></details>", escape(whose), escape(text));
        }
        out.push_str("</section>");
        out
    }

    fn table(&self) -> String {
        let several = self.comparison.rows.len() > 1;
        let mut out =
            String::from("<div class=wide><table id=results><thead><tr><th>method<th>seeds<th>final %<th>best %");
        out.push_str("<th>forgetting<th>area %");
        if several {
            out.push_str("<th>difference<th>95 % interval<th>p<th>p (Holm)<th>rank");
        }
        out.push_str("<th>to target<th>MB<th>seconds</tr></thead><tbody>");
        let columns = if several { 14 } else { 9 };
        let mut setting = None;
        for (row, style) in self.comparison.rows.iter().zip(&self.methods) {
            let own = self.comparison.settings.get(row.setting).filter(|_| self.comparison.settings.len() > 1);
            if own.is_some() && setting != Some(row.setting) {
                let label = own.map_or("", |own| &own.label);
                let _ = write!(out, "<tr class=setting-of><th colspan={columns}>{}</th></tr>", escape(label));
            }
            setting = Some(row.setting);
            let mut cells = vec![
                row.seeds_cell(),
                spread(row.final_accuracy, 100.0, 2),
                spread(row.best_accuracy, 100.0, 2),
                spread(row.forgetting, 1.0, 3),
                spread(row.area, 100.0, 2),
            ];
            if several {
                cells.extend(row.difference_cells().into_iter().chain(row.p_cells()).chain([row.rank_cell()]));
            }
            let mean = |found: Option<MeanSd>, scale: f64| {
                found.map_or("-".to_string(), |found| format!("{:.1}", scale * found.mean))
            };
            cells.push(row.to_target_cell());
            cells.extend([mean(row.bytes, 1e-6), mean(row.seconds, 1.0)]);
            let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            let _ = write!(
                out,
                "<tr><th><i style=\"background:{}\"></i>{}{}</th>{cells}</tr>",
                style.colour,
                escape(&row.name),
                marked(row),
            );
        }
        out.push_str("</tbody></table></div>");
        out
    }
}

/// How many runs of a row are marked, in words.
fn marked(row: &ComparisonRow) -> String {
    let counts = [(row.unfinished, "unfinished"), (row.collapsed, "collapsed")];
    let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { String::new() } else { format!(" <small>({})</small>", parts.join(", ")) }
}

/// Maximum notices on a page.
const NOTICES: usize = 100;

/// What the runs noticed, one line per run and kind.
fn notices(study: &Results) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for group in &study.groups {
        for run in &group.runs {
            let line = |text: String| format!("{}, seed {}: {text}", group.label, run.header.seed);
            lines.extend(run.notices().into_iter().map(line));
        }
    }
    let more = lines.len().saturating_sub(NOTICES);
    lines.truncate(NOTICES);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

fn news(version: &str, body: &str, data: &PageData<'_>) -> String {
    serde_json::json!({ "version": version, "body": body, "data": data }).to_string()
}

/// A live page, and what it fetches, while there is nothing to show yet.
pub fn waiting(reason: &str, version: &str) -> (String, String) {
    let data = PageData { methods: &[], cards: &[], live: true };
    let body = format!(
        "<p class=setting>Nothing to show yet: {}</p><div id=methods></div><div id=cards></div>",
        escape(reason)
    );
    (page("Fedelity", body.clone(), &data), news(version, &body, &data))
}

fn page(title: &str, body: String, data: &PageData<'_>) -> String {
    // Nothing inside a script element may look like its end tag.
    let text = serde_json::to_string(data).unwrap_or_default();
    let text = text.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    let parts = [
        ("{{connect}}", if data.live { "connect-src 'self'; " } else { "" }.to_string()),
        ("{{title}}", escape(&title.chars().take(120).collect::<String>())),
        ("{{styles}}", STYLES.to_string()),
        ("{{body}}", body),
        ("{{data}}", text),
        ("{{charts}}", CHARTS.to_string()),
        ("{{script}}", SCRIPT.to_string()),
    ];
    fill(PAGE, &parts)
}

/// Replaces each placeholder in one pass, so that nothing inside a part is taken for a placeholder.
fn fill(page: &str, parts: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(page.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    let mut rest = page;
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match parts.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, part)) => {
                out.push_str(part);
                rest = &rest[name.len()..];
            }
            None => {
                out.push_str("{{");
                rest = &rest[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Text escaped for HTML.
pub(crate) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// The distinct values of something over all runs.
fn values(study: &Results, of: impl Fn(&crate::LoadedRun) -> String) -> Vec<String> {
    let mut values: Vec<String> = study.runs().map(of).filter(|value| !value.is_empty()).collect();
    // Numbers by size, before words.
    let number = |text: &str| text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    values.sort_by(|a, b| match (number(a), number(b)) {
        (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.cmp(b)),
        (Some(_), None) => std::cmp::Ordering::Less,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (None, None) => a.cmp(b),
    });
    values.dedup();
    values
}

/// All of them, as a list.
fn all(study: &Results, of: impl Fn(&crate::LoadedRun) -> String) -> String {
    values(study, of).join(", ")
}

/// All of them, as part of a sentence.
fn either(mut values: Vec<String>) -> String {
    let Some(last) = values.pop() else { return String::new() };
    if values.is_empty() {
        return last;
    }
    // Commas inside the values would be confused with those between them.
    let mark = if values.iter().chain([&last]).any(|value| value.contains(", ")) { ";" } else { "" };
    format!("{}{mark} or {last}", values.join(if mark.is_empty() { ", " } else { "; " }))
}

/// An integer with thousands separators.
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

/// The setting in one paragraph.
fn setting(study: &Results) -> String {
    let of = |part: fn(&crate::LoadedRun) -> String| either(values(study, part));
    let key = |name: &'static str| either(values(study, move |run| run.config.get(name).cloned().unwrap_or_default()));
    let rounds = match of(|run| run.header.rounds.to_string()) {
        one if one == "1" => "the one round".to_string(),
        all => format!("each of {all} rounds"),
    };
    let mut text = format!(
        "{}. {} clients train in {rounds}",
        of(|run| format!("{}, {}", run.header.dataset, run.header.partition)),
        of(|run| format!("{} of {}", run.header.per_round, run.header.clients)),
    );
    if !key("clients.epochs").is_empty() {
        let (epochs, batch) = (key("clients.epochs"), key("clients.batch"));
        let noun = if epochs == "1" { "epoch" } else { "epochs" };
        let _ = write!(text, ", {epochs} local {noun} in batches of {batch}");
        let _ = write!(text, ", {} with learning rate {}", key("optimizer.kind"), key("optimizer.lr"));
        for (name, word) in [("optimizer.momentum", "momentum"), ("optimizer.weight-decay", "weight decay")] {
            if !key(name).is_empty() {
                let _ = write!(text, ", {word} {}", key(name));
            }
        }
    }
    let _ = write!(
        text,
        ". The model is {}. Seeds: {}.",
        of(|run| format!("{} with {} parameters", run.header.model, thousands(run.header.parameters))),
        all(study, |run| run.header.seed.to_string()),
    );
    text
}

fn environment(study: &Results) -> Vec<(String, String)> {
    let facts = [
        ("Fedelity", all(study, |run| run.header.fedelity.clone())),
        ("Machine", all(study, |run| run.header.machine.clone())),
        ("Instruction set", all(study, |run| run.header.isa.clone())),
        ("Threads", all(study, |run| run.header.threads.to_string())),
        ("Data (SHA-256)", all(study, |run| run.header.dataset_fingerprint.clone())),
        ("Partition (SHA-256)", all(study, |run| run.header.partition_fingerprint.clone())),
    ];
    let early = |group: &Group, run: &LoadedRun| match run.summary.status {
        Status::StoppedEarly { best, .. } => {
            let (label, seed, round) = (&group.label, run.header.seed, run.summary.rounds);
            Some(format!(
                "{label}, seed {seed}: after round {round}, with no better validation accuracy since round {best}"
            ))
        }
        Status::Finished | Status::Diverged { .. } | Status::Interrupted => None,
    };
    let kept = |group: &Group, run: &LoadedRun| {
        let found = run.summary.best_model?;
        let how = match found.chosen_by {
            ChosenBy::Validation => "the best on the validation part",
            ChosenBy::Test => "chosen by the test samples themselves, so its test accuracy is too high an estimate",
        };
        Some(format!("{}, seed {}: round {}, {how}", group.label, run.header.seed, found.round))
    };
    let facts = facts.into_iter().chain([("Stopped early", each(study, early)), ("Best model", each(study, kept))]);
    facts.filter(|(_, value)| !value.is_empty()).map(|(what, value)| (what.to_string(), value)).collect()
}

/// What is said about each run, if anything.
fn each(study: &Results, of: impl Fn(&Group, &LoadedRun) -> Option<String>) -> String {
    let all = study.groups.iter().flat_map(|group| group.runs.iter().map(move |run| (group, run)));
    all.filter_map(|(group, run)| of(group, run)).collect::<Vec<_>>().join("; ")
}

/// The command that reproduces each run.
fn commands(study: &Results) -> Vec<String> {
    study.runs().map(|run| format!("fedelity run {}", run.path.join("config.toml").display())).collect()
}

/// The configuration of each method with its first seed, for readers who do not have the run folders.
fn configurations(study: &Results) -> Vec<(String, String)> {
    let first = study.groups.iter().filter_map(|group| Some((group, group.runs.first()?)));
    let known = first.filter(|(_, run)| !run.config_text.is_empty());
    let name = |run: &crate::LoadedRun| format!("{}, seed {}", run.path.join("config.toml").display(), run.header.seed);
    known.map(|(group, run)| (format!("{}: {}", group.label, name(run)), run.config_text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_stays_readable() {
        let of = |values: &[&str]| either(values.iter().map(|value| value.to_string()).collect());
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["3 of 20"]), "3 of 20");
        assert_eq!(of(&["1", "5", "10"]), "1, 5 or 10");
        assert_eq!(of(&["cifar10, iid", "mnist, shards"]), "cifar10, iid; or mnist, shards");
    }

    #[test]
    fn nothing_escapes_and_nothing_is_filled_twice() {
        assert_eq!(escape("<b a='\"&'>"), "&lt;b a=&#39;&quot;&amp;&#39;&gt;");
        assert_eq!((thousands(7), thousands(1_234_567)), ("7".to_string(), "1,234,567".to_string()));
        assert_eq!(fill("a{{x}}b{{y}}{{z}}", &[("{{x}}", "{{y}}".into()), ("{{y}}", "1".into())]), "a{{y}}b1{{z}}");
    }
}
