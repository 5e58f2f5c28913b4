//! A self-contained page: no other files, no network.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fedelity_record::{ChosenBy, Leaves, Status};
use serde::Serialize;

use crate::cards::cards;
use crate::cards::clients::chosen;
use crate::client_table::client_tables;
use crate::compare::{Comparison, ComparisonRow, Options};
use crate::conditions::{all, conditions, values};
use crate::embed::FeatureLayouts;
use crate::error::ReportError;
use crate::figure::{BANDS, Drawing, FigureCard, MethodStyle, SEED_STRENGTH, SHADES, Theme, class_colour, styles};
use crate::loaded::{LeftOut, LoadedRun};
use crate::mark::{MarkKind, REMEDY, UNLEARNT_REMEDY};
use crate::progress::StudyProgress;
use crate::replication::Replication;
use crate::reproduce::Recipe;
use crate::results::{Group, Results};
use crate::table::TableColumn;

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
    recipe: Recipe,
    /// What the runs noticed about themselves.
    notices: Vec<String>,
    /// What often helps against it.
    remedies: Vec<&'static str>,
    /// Uploads that did not count.
    incidents: Vec<String>,
    /// Tables of the clients, as HTML; empty if nothing is known about them.
    clients: String,
    pub left_out: Vec<LeftOut>,
    /// How far the runs are, on a live page.
    progress: Option<StudyProgress>,
    /// A published table that the runs are compared with.
    replication: Option<Replication>,
}

/// The part that the page's script reads.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct PageData<'a> {
    methods: &'a [MethodStyle],
    cards: &'a [FigureCard],
    live: bool,
    progress: Option<&'a StudyProgress>,
    /// Methods that can have bands, and how opaque single seeds are.
    bands: usize,
    seed_strength: f64,
    shades: [&'static str; SHADES.len()],
    /// Colours of classes on light and on dark ground, by the number of classes.
    class_colours: BTreeMap<usize, [Vec<String>; 2]>,
}

impl<'a> PageData<'a> {
    fn new(methods: &'a [MethodStyle], cards: &'a [FigureCard], live: bool) -> Self {
        let mut class_colours = BTreeMap::new();
        for figure in cards.iter().flat_map(|card| &card.figures) {
            if let Drawing::Points { classes, .. } = &figure.drawing {
                let of = |theme: Theme| {
                    let colour = |class: usize| {
                        let (r, g, b) = class_colour(class, classes.len(), theme);
                        format!("#{r:02x}{g:02x}{b:02x}")
                    };
                    (0..classes.len()).map(colour).collect()
                };
                class_colours.entry(classes.len()).or_insert_with(|| [of(Theme::Light), of(Theme::Dark)]);
            }
        }
        let (progress, bands, seed_strength, shades) = (None, BANDS, SEED_STRENGTH, SHADES);
        Self { methods, cards, live, progress, bands, seed_strength, shades, class_colours }
    }
}

impl ReportPage {
    /// A report on the runs of a study. Several settings are shown together, and compared separately.
    pub fn new(study: &Results, baseline: Option<String>) -> Result<Self, ReportError> {
        Self::with(study, baseline, &mut FeatureLayouts::default(), false)
    }

    /// The same, with these clients drawn, by name or number.
    pub fn of_clients(study: &Results, baseline: Option<String>, clients: &[String]) -> Result<Self, ReportError> {
        Self::build(study, baseline, clients, &mut FeatureLayouts::default(), false)
    }

    /// The same, reusing the layouts of an earlier report. On a live page, runs without an end are still running.
    pub fn with(
        study: &Results,
        baseline: Option<String>,
        embeddings: &mut FeatureLayouts,
        live: bool,
    ) -> Result<Self, ReportError> {
        Self::build(study, baseline, &[], embeddings, live)
    }

    fn build(
        study: &Results,
        baseline: Option<String>,
        clients: &[String],
        embeddings: &mut FeatureLayouts,
        live: bool,
    ) -> Result<Self, ReportError> {
        let clients = chosen(study, clients)?;
        let comparison = Comparison::new(study, &Options { baseline, live, ..Options::default() })?;
        let mut left_out = study.left_out.clone();
        if live {
            let open: Vec<_> = study.runs().filter(|run| run.is_open()).map(|run| &run.path).collect();
            left_out.retain(|out| !(out.is_of_an_open_run() && open.contains(&&out.path)));
        }
        let cards = cards(study, &clients, embeddings, &mut left_out);
        Ok(Self {
            methods: styles(&study.groups),
            cards,
            setting: conditions(study),
            recipe: Recipe::new(study, environment(study)),
            notices: lines(study, LoadedRun::notices),
            remedies: remedies(study),
            incidents: lines(study, |run| run.incidents().into_iter().collect()),
            clients: client_tables(study, &clients),
            left_out,
            comparison,
            progress: live.then(|| StudyProgress::new(study)),
            replication: None,
        })
    }

    /// The same, with a published table at the top that the runs are compared with.
    #[must_use]
    pub fn beside(mut self, replication: Replication) -> Self {
        self.replication = Some(replication);
        self
    }

    fn data(&self) -> PageData<'_> {
        let data = PageData::new(&self.methods, &self.cards, self.progress.is_some());
        PageData { progress: self.progress.as_ref(), ..data }
    }

    /// The page. A live one polls its server for updates.
    pub fn html(&self) -> String {
        let labels: Vec<&str> = self.methods.iter().map(|method| method.label.as_str()).collect();
        let title = self.replication.as_ref().map_or_else(|| labels.join(", "), |found| found.title.clone());
        page(&format!("Fedelity: {title}"), self.body(), &self.data())
    }

    /// What a live page fetches: a version of this state, the text and the figures.
    pub fn news(&self, version: &str) -> String {
        news(version, &self.body(), &self.data())
    }

    /// Data, partition, training and model in one paragraph.
    pub(crate) fn setting(&self) -> &str {
        &self.setting
    }

    /// The page without its figures.
    fn body(&self) -> String {
        let mut out = self.replication.as_ref().map_or_else(String::new, Replication::html);
        let _ = write!(out, "<p class=setting>{}</p>", escape(&self.setting));
        out.push_str(&self.table());
        for note in self.comparison.notes.iter().chain(&self.comparison.footnotes) {
            let _ = write!(out, "<p class=note>{}</p>", escape(note));
        }
        if self.comparison.rows.iter().any(|row| row.seeds.len() > 1) {
            let _ = write!(out, "<p class=note>{}</p>", escape(&self.of_figures()));
        }
        if !self.notices.is_empty() {
            out.push_str("<details open class=warning><summary>What was noticed</summary><ul>");
            for notice in &self.notices {
                let _ = write!(out, "<li>{}</li>", escape(notice));
            }
            let _ = write!(out, "</ul><p>{}</p></details>", escape(&self.remedies.join(" ")));
        }
        if !self.incidents.is_empty() {
            out.push_str("<details><summary>Uploads that did not count</summary><ul>");
            for incident in &self.incidents {
                let _ = write!(out, "<li>{}</li>", escape(incident));
            }
            out.push_str("</ul></details>");
        }
        if !self.left_out.is_empty() {
            out.push_str("<details open class=warning><summary>What was left out</summary><ul>");
            for LeftOut { path, what } in &self.left_out {
                let _ = write!(out, "<li>{}: {}</li>", escape(&path.display().to_string()), escape(what));
            }
            out.push_str("</ul></details>");
        }
        out.push_str("<div id=cards></div>");
        out.push_str(&self.clients);
        let Recipe { facts, commands, files } = &self.recipe;
        out.push_str("<section id=reproduce><h2>How to reproduce it</h2><table class=facts>");
        for (what, value) in facts {
            let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(what), escape(value));
        }
        out.push_str("</table>");
        if !commands.is_empty() {
            let (these, them) = match files.len() {
                1 => ("the configuration below", "it"),
                _ => ("the configurations below", "them"),
            };
            let _ = write!(
                out,
                "<p class=text>Save {these}, and run {them} with this version of Fedelity. The same data give the same \
                 numbers, bit for bit, on any machine and with any number of threads.</p><pre>{}</pre>",
                escape(&commands.join("\n"))
            );
        }
        for (name, of, text) in files {
            let (name, of, text) = (escape(name), escape(of), escape(text));
            let _ = write!(out, "<details><summary><b>{name}</b> {of}</summary><pre>{text}</pre></details>");
        }
        out.push_str("</section>");
        out
    }

    fn table(&self) -> String {
        let columns: Vec<TableColumn> =
            TableColumn::ALL.into_iter().filter(|column| column.tells(&self.comparison)).collect();
        let mut out = String::from("<div class=wide><table id=results><thead><tr><th>method</th>");
        for column in &columns {
            let _ = write!(out, "<th>{}</th>", escape(column.heading()));
        }
        out.push_str("</tr></thead><tbody>");
        let mut setting = None;
        for (method, row) in self.comparison.rows.iter().enumerate() {
            let own = self.comparison.settings.get(row.setting).filter(|_| self.comparison.settings.len() > 1);
            if let Some(own) = own.filter(|_| setting != Some(row.setting)) {
                let (wide, label) = (columns.len() + 1, escape(&own.label));
                let _ = write!(out, "<tr class=setting-of><th colspan={wide}>{label}</th></tr>");
            }
            setting = Some(row.setting);
            let (title, marked) = (escape(&row.title), marked(row));
            let _ = write!(out, "<tr><th><i data-method={method}></i>{title}{marked}</th>");
            for column in &columns {
                // A line may break before the deviation, and nowhere else.
                let cell = escape(&column.cell(row)).replace(" ± ", " <wbr>±&nbsp;");
                let _ = write!(out, "<td data-column=\"{}\">{cell}</td>", escape(column.heading()));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        out
    }
}

/// How many runs of a row are marked, in words.
fn marked(row: &ComparisonRow) -> String {
    let count = |kind: MarkKind| row.marks.iter().filter(|mark| mark.kind == kind).count();
    let counts = MarkKind::ALL.map(|kind| (count(kind), kind.what()));
    let parts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if parts.is_empty() { String::new() } else { format!(" <small>({})</small>", parts.join(", ")) }
}

/// What often helps against what the runs noticed.
fn remedies(study: &Results) -> Vec<&'static str> {
    let noticed = || study.runs().filter(|run| !run.notices().is_empty());
    let of = [(false, REMEDY), (true, UNLEARNT_REMEDY)];
    let fits = |unlearnt: bool| noticed().any(|run| run.summary.unlearnt.is_some() == unlearnt);
    of.into_iter().filter(|(unlearnt, _)| fits(*unlearnt)).map(|(_, remedy)| remedy).collect()
}

/// Maximum notices on a page.
const NOTICES: usize = 100;

/// What is to be said of the runs, a line each.
fn lines(study: &Results, of: impl Fn(&LoadedRun) -> Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for group in &study.groups {
        for run in &group.runs {
            let line = |text: String| format!("{}, seed {}: {text}", group.title(), run.header.seed);
            lines.extend(of(run).into_iter().map(line));
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
    let data = PageData::new(&[], &[], true);
    let body = format!("<p class=setting>Nothing to show yet: {}</p><div id=cards></div>", escape(reason));
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

fn environment(study: &Results) -> Vec<(String, String)> {
    let facts = [
        ("Fedelity", all(study, |run| run.header.fedelity.clone())),
        ("Seeds", all(study, |run| run.header.seed.to_string())),
        ("Data", all(study, |run| run.header.dataset.clone())),
        ("Data (SHA-256)", all(study, |run| run.header.dataset_fingerprint.clone())),
        ("Partition (SHA-256)", all(study, |run| run.header.partition_fingerprint.clone())),
        ("Machine", all(study, |run| run.header.machine.clone())),
        ("Instruction set", all(study, |run| run.header.isa.clone())),
        ("Threads", all(study, |run| run.header.threads.to_string())),
    ];
    let early = |group: &Group, run: &LoadedRun| match run.summary.status {
        Status::StoppedEarly { best, .. } => {
            let (label, seed, round) = (group.title(), run.header.seed, run.summary.rounds);
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
        Some(format!("{}, seed {}: round {}, {how}", group.title(), run.header.seed, found.round))
    };
    let leaves = |run: &LoadedRun| run.header.leaves.as_ref().map_or(String::new(), Leaves::describe);
    let spent = |group: &Group, run: &LoadedRun| {
        let spent = run.summary.privacy?.describe();
        Some(format!("{}, seed {}: {spent} after {} rounds", group.title(), run.header.seed, run.summary.rounds))
    };
    let facts = facts.into_iter().chain([
        ("Stopped early", each(study, early)),
        ("Best model", each(study, kept)),
        ("Leaves a client", values(study, leaves).join("; or ")),
        ("Privacy", each(study, spent)),
    ]);
    facts.filter(|(_, value)| !value.is_empty()).map(|(what, value)| (what.to_string(), value)).collect()
}

/// What is said about each run, if anything.
fn each(study: &Results, of: impl Fn(&Group, &LoadedRun) -> Option<String>) -> String {
    let all = study.groups.iter().flat_map(|group| group.runs.iter().map(move |run| (group, run)));
    all.filter_map(|(group, run)| of(group, run)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_and_nothing_is_filled_twice() {
        assert_eq!(escape("<b a='\"&'>"), "&lt;b a=&#39;&quot;&amp;&#39;&gt;");
        assert_eq!(fill("a{{x}}b{{y}}{{z}}", &[("{{x}}", "{{y}}".into()), ("{{y}}", "1".into())]), "a{{y}}b1{{z}}");
    }
}
