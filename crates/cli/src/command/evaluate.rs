//! `fedelity evaluate`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use fedelity_experiment::{Document, Loaded, Resources, Saved};
use fedelity_fl::Evaluation;
use fedelity_nn::{Card, Input};
use fedelity_record::names;
use serde_json::json;
use toml::Value;

use super::run::threads;
use crate::engine::resources;
use crate::latest::resolve;
use crate::overrides::{Overrides, settings};
use crate::printer::{Printer, Style};
use crate::status::ExitStatus;
use crate::view::table::{Align, Table};
use crate::view::units::{plural, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity evaluate runs/a                                  on the run's test data
  fedelity evaluate runs/a/model.safetensors --data fashion-mnist --data-dir ~/data
  fedelity evaluate runs/a --data folder --set data.path=photos
  fedelity evaluate runs/a --json | jq .accuracy
  fedelity evaluate torch.safetensors --model resnet18-bn --data cifar10 --data-dir ~/data

The model file records how inputs are normalised, scaled or tokenised. Classes are matched by name;
data with other class names must have the same number of classes, in the same order.";

/// Test a trained model on labelled data
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvaluateCommand {
    /// A run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    target: PathBuf,

    /// The data set, or a configuration that names one [default: the run folder's].
    #[arg(long, value_name = "NAME")]
    data: Option<String>,

    /// The architecture, for a file that does not name it.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    #[command(flatten)]
    overrides: Overrides,

    /// Threads; they do not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl EvaluateCommand {
    pub(crate) fn run(mut self, printer: &Printer) -> Result<ExitStatus> {
        self.target = resolve(&self.target, printer)?;
        let (threads, resources) = (threads(self.threads)?, resources()?);
        let foreign = self.overrides.foreign(self.model.as_deref(), self.data.as_deref())?;
        let saved = Saved::open(&self.target, self.model.as_deref(), foreign.as_ref(), &resources)?;
        let Loaded { dataset, skipped, .. } = self.data(&saved.card, &resources, printer)?;
        printer.left_out(&skipped);
        let (split, remark) = saved.fit_to(&dataset)?;
        remark.iter().for_each(|remark| printer.warn(remark));
        let found = saved.evaluate(&split, threads);
        if self.json {
            printer.json(&answer(&saved, &dataset.name, &found))?;
        } else {
            show(printer, &saved, &dataset.name, &found)?;
        }
        Ok(ExitStatus::Done)
    }

    /// The data to test on.
    fn data(&self, card: &Card, resources: &Resources, printer: &Printer) -> Result<Loaded> {
        let config = self.target.join(names::CONFIG);
        let mut document = match &self.data {
            Some(what) => self.overrides.data_document(what, "--data")?,
            None if config.is_file() => self.overrides.document(Some(&config))?,
            None => {
                let example = card.origin.get("dataset").map_or("NAME", String::as_str);
                bail!("--data is missing: name the data to test on, such as --data {example}")
            }
        };
        as_the_model(&mut document, card)?;
        Ok(resources.load(&document, &settings(&document, printer)?.config.data)?)
    }
}

/// Image files are read with the model's size and colours, unless the configuration specifies others.
fn as_the_model(document: &mut Document, card: &Card) -> Result<()> {
    let Input::Image { channels, height, width } = card.input else { return Ok(()) };
    let Some(Value::Table(data)) = document.table().get("data") else { return Ok(()) };
    let name = data.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
    let (size, colour) = (data.contains_key("size"), data.contains_key("colour"));
    if fedelity_data::DataSource::is_scaled(&name) && !size {
        let sides = [height, width].map(|side| Value::Integer(side as i64));
        document.put(&["data", "size"], Value::Array(sides.to_vec()), "MODEL")?;
    }
    if name == "folder" && !colour {
        let colour = if channels == 1 { "grey" } else { "rgb" };
        document.put(&["data", "colour"], colour.into(), "MODEL")?;
    }
    Ok(())
}

fn answer(saved: &Saved, data: &str, found: &Evaluation) -> serde_json::Value {
    let accuracies = found.class_accuracy();
    let class = |(label, name): (usize, &String)| {
        json!({
            "label": label,
            "class": name,
            "samples": found.totals[label],
            "correct": found.correct[label],
            "accuracy": accuracies[label],
        })
    };
    json!({
        "file": saved.path.display().to_string(),
        "model": saved.card.model,
        "data": data,
        "samples": found.samples(),
        "accuracy": found.accuracy(),
        "loss": found.loss(),
        "classes": saved.card.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
    })
}

fn show(printer: &Printer, saved: &Saved, data: &str, found: &Evaluation) -> Result<()> {
    let title = format!("{} on {} of {data}", saved.card.model, plural(found.samples() as usize, "test sample"));
    printer.line(printer.paint(Style::Heading, &title))?;
    printer.line(format!("accuracy  {:.2} %", 100.0 * found.accuracy()))?;
    printer.line(found.loss().map_or("loss      not finite".to_string(), |loss| format!("loss      {loss:.4}")))?;
    printer.line("")?;
    let columns =
        [("label", Align::Right), ("class", Align::Left), ("samples", Align::Right), ("accuracy %", Align::Right)];
    let mut table = Table::new(&columns);
    for ((label, name), accuracy) in saved.card.classes.iter().enumerate().zip(found.class_accuracy()) {
        table.row([
            label.to_string(),
            name.clone(),
            thousands(found.totals[label] as usize),
            accuracy.map_or("-".to_string(), |share| format!("{:.2}", 100.0 * share)),
        ]);
    }
    for line in table.lines(printer) {
        printer.line(line)?;
    }
    Ok(())
}
