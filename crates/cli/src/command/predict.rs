//! `fedelity predict`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedelity_data::{ImageShape, Inputs, Skipped, Split, images, table};
use fedelity_experiment::{Saved, TextReader, table_form};
use fedelity_nn::Input;
use serde_json::json;

use crate::engine::resources;
use crate::latest::resolve;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::table::{Align, Table};

const EXAMPLES: &str = "\
Examples:
  fedelity predict runs/a photo.png shoe.jpg
  fedelity predict runs/a/model.safetensors photos/*.png --top 1 --skip-bad
  fedelity predict runs/reviews --text 'A gripping, funny film.' --text 'Dull.'
  fedelity predict runs/reviews reviews.txt                 one text per line; - reads stdin
  fedelity predict runs/reviews reviews.csv --column body   also .tsv and .jsonl
  fedelity predict runs/patients new.csv                    rows of a table, also .tsv and .jsonl
  fedelity predict runs/patients new.csv --ignore remarks   without a column unknown to the model
  fedelity predict runs/a photo.png --json | jq .predictions[0].class

Images are scaled to the size the model was trained on. Table columns are matched by name, in any
order; a label column is optional. A category that the model does not know counts as none. The model
file records how inputs are normalised or tokenized, the columns and the class names.";

/// Classify images, texts or rows of a table with a trained model
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Predict {
    /// A run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    target: PathBuf,

    /// Images (PNG, JPEG), or files with texts or rows.
    #[arg(value_name = "FILES")]
    files: Vec<PathBuf>,

    /// A text to classify. May be repeated.
    #[arg(long, value_name = "TEXT")]
    text: Vec<String>,

    /// The column with the texts in CSV and JSON Lines files [default: that of the training data, or text].
    #[arg(long, value_name = "NAME")]
    column: Option<String>,

    /// Ignore a table column that the model does not know. May be repeated.
    #[arg(long, value_name = "COLUMN")]
    ignore: Vec<String>,

    /// How many classes to print for each input.
    #[arg(long, value_name = "K", default_value_t = 3)]
    top: usize,

    /// The architecture, for a file that does not name it.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The data set, for a file that does not describe its inputs and classes.
    #[arg(long, value_name = "NAME")]
    data: Option<String>,

    #[command(flatten)]
    overrides: Overrides,

    /// Number of threads; does not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object per input.
    #[arg(long)]
    json: bool,
}

/// Inputs read and classified together.
const AT_ONCE: usize = 1_024;
/// Characters of a text shown in the table.
const SHOWN: usize = 40;

/// An input and its name in the output.
struct NamedInput {
    name: String,
    text: Option<String>,
}

impl Predict {
    pub(crate) fn run(mut self, printer: &Printer) -> Result<ExitStatus> {
        self.target = resolve(&self.target, printer)?;
        let threads = threads("--threads", self.threads, printer)?;
        if self.top == 0 {
            bail!("--top 0: expected a whole number of at least 1");
        }
        if self.files.is_empty() && self.text.is_empty() {
            bail!("FILES: expected at least one image, text or table, such as fedelity predict runs/a photo.png");
        }
        if let Some(folder) = self.files.iter().find(|path| path.is_dir()) {
            let folder = folder.display();
            bail!("{folder}: a folder: name the files in it, such as {folder}/*; for labelled data, fedelity evaluate");
        }
        let foreign = self.overrides.foreign(self.model.as_deref(), self.data.as_deref())?;
        let saved = Saved::open(&self.target, self.model.as_deref(), foreign.as_ref(), &resources()?)?;
        saved.stale.iter().for_each(|stale| printer.warn(stale));
        let mut skipped = Skipped::new(self.overrides.skip_bad);
        let columns = [("input", Align::Left), ("class", Align::Left), ("probability", Align::Right)];
        let mut out = Out { printer, top: self.top, json: self.json, table: Table::new(&columns) };
        if !self.text.is_empty() && !matches!(saved.card.input, Input::Tokens { .. }) {
            bail!("--text: the model {} reads {}", saved.path.display(), saved.card.input);
        }
        match saved.card.input {
            Input::Image { channels, height, width } => {
                let shape = ImageShape { channels, height, width };
                for paths in self.files.chunks(AT_ONCE) {
                    let (pixels, kept) = images(paths, shape, &mut skipped)?;
                    let names = kept.iter().map(|&i| NamedInput { name: paths[i].display().to_string(), text: None });
                    let names: Vec<NamedInput> = names.collect();
                    let split = Split::images(pixels, vec![0; names.len()]);
                    out.add(&saved, &names, &split, threads)?;
                }
            }
            Input::Tokens { .. } => {
                let reader = TextReader::of(&saved.card, &saved.path)?;
                let found = self.texts(&saved, &mut skipped)?;
                for part in found.chunks(AT_ONCE) {
                    let texts: Vec<String> = part.iter().filter_map(|named| named.text.clone()).collect();
                    let labels = vec![0; texts.len()];
                    let split = Split { inputs: Inputs::Tokens(reader.encode(&texts)?), labels, keys: None };
                    out.add(&saved, part, &split, threads)?;
                }
            }
            Input::Numbers { width } => {
                let Some(form) = table_form(&saved.card) else {
                    bail!("{}: the file does not name the columns that the model reads", saved.path.display());
                };
                for path in &self.files {
                    let found = table::unlabelled(path, &form, &self.ignore, &mut skipped)?;
                    found.notes.iter().for_each(|note| printer.warn(note));
                    for (lines, numbers) in found.lines.chunks(AT_ONCE).zip(found.numbers.chunks(AT_ONCE * width)) {
                        let name = |line: &u64| NamedInput { name: format!("{}:{line}", path.display()), text: None };
                        let names: Vec<NamedInput> = lines.iter().map(name).collect();
                        let inputs = Inputs::Floats(numbers.to_vec());
                        let split = Split { inputs, labels: vec![0; names.len()], keys: None };
                        out.add(&saved, &names, &split, threads)?;
                    }
                }
            }
            input => bail!("{}: the model reads {input}, which predict cannot", saved.path.display()),
        }
        out.finish()?;
        printer.left_out(&skipped);
        Ok(ExitStatus::Done)
    }

    /// The texts from the command line, then those from the files.
    fn texts(&self, saved: &Saved, skipped: &mut Skipped) -> Result<Vec<NamedInput>> {
        let trained = saved.card.table.as_ref().and_then(|table| table.text.as_deref());
        let column = self.column.as_deref().or(trained).unwrap_or("text");
        let own = |text: &String| NamedInput { name: cut(text), text: Some(text.clone()) };
        let mut found: Vec<NamedInput> = self.text.iter().map(own).collect();
        for path in &self.files {
            let before = found.len();
            if path == Path::new("-") {
                let all = std::io::read_to_string(std::io::stdin()).context("stdin")?;
                let lines = (1..).zip(all.lines()).filter(|(_, line)| !line.trim().is_empty());
                found.extend(
                    lines.map(|(n, line)| NamedInput { name: format!("stdin:{n}"), text: Some(line.to_string()) }),
                );
            } else {
                let texts = table::texts(path, column, skipped)?;
                let name = |line: u64| format!("{}:{line}", path.display());
                found.extend(texts.into_iter().map(|(line, text)| NamedInput { name: name(line), text: Some(text) }));
            }
            if found.len() == before && skipped.count == 0 {
                bail!("{}: the file contains no text", path.display());
            }
        }
        Ok(found)
    }
}

/// The start of a text, on one line.
fn cut(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// The output for results.
struct Out<'a> {
    printer: &'a Printer,
    top: usize,
    json: bool,
    table: Table,
}

impl Out<'_> {
    fn add(&mut self, saved: &Saved, names: &[NamedInput], split: &Split, threads: usize) -> Result<()> {
        let classes = &saved.card.classes;
        let logits = saved.logits(split, threads);
        for (named, logits) in names.iter().zip(logits.chunks_exact(classes.len())) {
            let best = top(logits, self.top).with_context(|| {
                format!("{}: the model's output for {} is not finite", saved.path.display(), named.name)
            })?;
            if self.json {
                let one = |&(label, probability): &(usize, f64)| json!({ "class": classes[label], "label": label, "probability": probability });
                let predictions: Vec<_> = best.iter().map(one).collect();
                let mut line = json!({ "input": named.name, "predictions": predictions });
                if let Some(text) = &named.text {
                    line["text"] = text.as_str().into();
                }
                self.printer.json(&line)?;
                continue;
            }
            for (rank, (label, probability)) in best.into_iter().enumerate() {
                let name = if rank == 0 { named.name.clone() } else { String::new() };
                self.table.row([name, classes[label].clone(), format!("{:.1} %", 100.0 * probability)]);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        if self.json {
            return Ok(());
        }
        self.printer.drawn(self.table.lines(self.printer))
    }
}

/// The most probable classes with their probabilities; `None` if logits are not finite.
fn top(logits: &[f32], count: usize) -> Option<Vec<(usize, f64)>> {
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let exponentials: Vec<f64> = logits.iter().map(|&logit| libm::exp(f64::from(logit) - f64::from(largest))).collect();
    let sum: f64 = exponentials.iter().sum();
    let mut all: Vec<(usize, f64)> = exponentials.iter().map(|e| e / sum).enumerate().collect();
    // Ties go to the lower class, as in evaluation.
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(count);
    all.iter().all(|(_, p)| p.is_finite()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_a_softmax() {
        let found = top(&[1.0, 3.0, 3.0, f32::MIN], 3).unwrap();
        let (e1, e3) = (1f64.exp(), 3f64.exp());
        assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 2, 0]);
        for (f, e) in found.iter().zip([e3, e3, e1]) {
            assert!((f.1 - e / (e1 + 2.0 * e3)).abs() < 1e-12);
        }
        assert_eq!(top(&[1000.0], 5), Some(vec![(0, 1.0)]));
        assert_eq!(top(&[f32::NAN, 1.0], 1), None);
        assert_eq!(top(&[f32::INFINITY, 1.0], 1), None);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("a\n b"), "a b");
        assert_eq!(cut(&"é".repeat(41)), format!("{}...", "é".repeat(40)));
    }
}
