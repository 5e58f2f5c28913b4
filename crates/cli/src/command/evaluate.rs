//! `fedelity evaluate`.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use fedelity_data::{Dataset, Inputs, Shape, Split};
use fedelity_fl::{Evaluation, Samples, Trainer};
use fedelity_nn::{Card, Input};
use fedelity_record::names;
use fedelity_sim::evaluate;
use serde_json::json;
use toml::Value;

use crate::command::run::threads;
use crate::config::{Data, Document, Overrides};
use crate::printer::{Printer, Style};
use crate::saved::{Foreign, Saved};
use crate::status::Status;
use crate::study::load_data;
use crate::table::{Align, Table};
use crate::text::Reader;
use crate::units::{plural, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity evaluate runs/a                                  on the test data of the run
  fedelity evaluate runs/a/model.safetensors --data fashion-mnist --data-dir ~/data
  fedelity evaluate runs/a --data folder --set data.path=photos
  fedelity evaluate runs/a --json | jq .accuracy
  fedelity evaluate torch.safetensors --model resnet18-bn --data cifar10 --data-dir ~/data

The model file says how inputs are normalised, scaled or turned into tokens. Classes are told apart
by their names; data whose classes have other names must have as many, in the same order.";

/// Test a trained model on labelled data
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Evaluate {
    /// A run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    target: PathBuf,

    /// The data set, or a configuration that names one [default: that of the run folder].
    #[arg(long, value_name = "NAME")]
    data: Option<String>,

    /// Which model it is, for a file that does not say so.
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

impl Evaluate {
    pub(crate) fn run(self, printer: &Printer) -> Result<Status> {
        let threads = threads(self.threads)?;
        let foreign = Foreign { model: self.model.as_deref(), data: self.data.as_deref(), overrides: &self.overrides };
        let saved = Saved::open(&self.target, foreign)?;
        let mut dataset = self.dataset(&saved.card, printer)?;
        let split = fit(&saved, &mut dataset, printer)?;
        let (scaling, indices) = (saved.scaling(), (0..split.len() as u32).collect::<Vec<u32>>());
        let mut trainers: Vec<Trainer> = (0..threads).map(|_| Trainer::new(saved.model.clone())).collect();
        let samples = Samples { split: &split, indices: &indices, scaling: &scaling };
        let found = evaluate(&mut trainers, &saved.params, samples, saved.card.classes.len()).evaluation;
        if self.json {
            printer.json(&answer(&saved, &dataset.name, &found))?;
        } else {
            show(printer, &saved, &dataset.name, &found)?;
        }
        Ok(Status::Done)
    }

    /// The data to test on.
    fn dataset(&self, card: &Card, printer: &Printer) -> Result<Dataset> {
        let config = self.target.join(names::CONFIG);
        let mut document = match &self.data {
            Some(what) => self.overrides.data_document(what, "--data")?,
            None if config.is_file() => self.overrides.document(Some(&config))?,
            None => {
                let example = card.origin.get("dataset").map_or("NAME", String::as_str);
                bail!("--data: which data to test on? Such as --data {example}")
            }
        };
        as_the_model(&mut document, card)?;
        let mut notes = Vec::new();
        let mut data = Data::check(&document, &mut notes)?;
        notes.iter().for_each(|note| printer.warn(note));
        let (dataset, skipped) = load_data(&document, &mut data)?;
        printer.left_out(&skipped);
        Ok(dataset)
    }
}

/// Image files are read in the model's size and colours, where nothing else is said.
fn as_the_model(document: &mut Document, card: &Card) -> Result<()> {
    let Input::Image { channels, height, width } = card.input else { return Ok(()) };
    let Some(Value::Table(data)) = document.table().get("data") else { return Ok(()) };
    let name = data.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
    let (size, colour) = (data.contains_key("size"), data.contains_key("colour"));
    if ["folder", "cinic10", "tiny-imagenet"].contains(&name.as_str()) && !size {
        let sides = [height, width].map(|side| Value::Integer(side as i64));
        document.put(&["data", "size"], Value::Array(sides.to_vec()), "MODEL")?;
    }
    if name == "folder" && !colour {
        let colour = if channels == 1 { "grey" } else { "rgb" };
        document.put(&["data", "colour"], colour.into(), "MODEL")?;
    }
    Ok(())
}

/// The test samples as the model takes them, with its labels.
fn fit(saved: &Saved, dataset: &mut Dataset, printer: &Printer) -> Result<Split> {
    let card = &saved.card;
    let mut split = std::mem::take(&mut dataset.test);
    if split.is_empty() {
        bail!("{}: there are no test samples", dataset.name);
    }
    match (card.input, dataset.shape) {
        (Input::Image { channels, height, width }, Shape::Image(shape))
            if (channels, height, width) == (shape.channels, shape.height, shape.width) => {}
        (Input::Numbers { width }, Shape::Numbers(found)) if width == found => {
            let Inputs::Floats(values) = &mut split.inputs else { bail!("{}: no numbers", dataset.name) };
            // The numbers were scaled by their own training rows; the model knows those it was trained on.
            for row in values.chunks_exact_mut(width) {
                for (i, value) in row.iter_mut().enumerate() {
                    let raw = *value * dataset.normalisation.std[i] + dataset.normalisation.mean[i];
                    *value = (raw - card.mean[i]) / card.std[i];
                }
            }
        }
        (Input::Tokens { .. }, Shape::Text) => Reader::of(card, &saved.path)?.tokenise(&mut split)?,
        (input, shape) => bail!("{}: the model reads {input}, and {} has {shape}", saved.path.display(), dataset.name),
    }
    let place = |name: &String| card.classes.iter().position(|known| known == name).map(|place| place as u16);
    let places: Option<Vec<u16>> = dataset.classes.iter().map(place).collect();
    match places {
        Some(places) => split.labels.iter_mut().for_each(|label| *label = places[usize::from(*label)]),
        None if dataset.classes.len() == card.classes.len() => {
            let (a, b) = (some(&dataset.classes), some(&card.classes));
            printer.warn(format_args!("the classes of the data ({a}) are not named as those of the model ({b})"));
        }
        None => {
            let (data, model) = (some(&dataset.classes), some(&card.classes));
            return Err(anyhow!(
                "{}: the model knows {} ({model}), and {} has {} ({data})",
                saved.path.display(),
                plural(card.classes.len(), "class"),
                dataset.name,
                plural(dataset.classes.len(), "class"),
            ));
        }
    }
    Ok(split)
}

/// The first few names.
fn some(names: &[String]) -> String {
    let more = if names.len() > 3 { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", "))
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
