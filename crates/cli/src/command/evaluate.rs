//! `fedelity evaluate`.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use fedelity_data::{DataSource, Dataset, FolderLayout, NaturalKeys, NewData, Part, Split};
use fedelity_experiment::{DataKeys, Document, Origin, Resources, Saved, Settings};
use fedelity_fl::Evaluation;
use fedelity_fl::observe::Portrait;
use fedelity_nn::{Card, Input};
use fedelity_record::{Scores, names, salvage_rounds};
use fedelity_sim::scores;
use serde_json::json;
use toml::Value;

use crate::engine::resources;
use crate::latest::resolve;
use crate::overrides::{Overrides, settings};
use crate::printer::{Printer, told};
use crate::status::ExitStatus;
use crate::threads::threads;
use crate::view::scores as view;
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{plural, thousands};

const EXAMPLES: &str = "\
Examples:
  fedelity evaluate runs/a                                  on the run's test data
  fedelity evaluate runs/a/model.safetensors --data fashion-mnist --data-dir ~/data
  fedelity evaluate runs/a --data photos                    all images of a folder
  fedelity evaluate runs/a --data new.csv --ignore remarks  all rows of a table
  fedelity evaluate runs/a/best.safetensors                 the best round's model, if kept
  fedelity evaluate runs/a --json | jq .accuracy
  fedelity evaluate torch.safetensors --model resnet18-bn --data cifar10 --data-dir ~/data

A data set is tested on its test samples. Your own data are used whole, unless they have a test
folder or data.test, or are the data of the run; --part chooses other samples. If the run's data
have not changed since, the output says how many samples have the same input as a training sample.

Samples of several sites (data.key, several files, or folders by site) are also tested site by site.
With two classes, sensitivity, specificity, F1 and the area under the ROC curve (AUC) refer to one
of them; --positive names it.

The model file records how inputs are normalised, scaled or tokenized, and the columns of tables.
Columns and classes are matched by name. Data with other class names must have the same number of
classes, in the same order.";

/// Test a trained model on labelled data
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvaluateCommand {
    /// A run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    target: PathBuf,

    /// The data set, a table, a folder, or a configuration that names one [default: the run folder's].
    #[arg(long, value_name = "DATA")]
    data: Option<String>,

    #[arg(long, value_name = "PART", help = part_help())]
    part: Option<String>,

    /// With two classes, the one to detect [default: the run's, else the last].
    #[arg(long, value_name = "CLASS")]
    positive: Option<String>,

    /// Ignore a table column that the model does not know. May be repeated.
    #[arg(long, value_name = "COLUMN")]
    ignore: Vec<String>,

    /// The architecture, for a file that does not name it.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    #[command(flatten)]
    overrides: Overrides,

    /// Number of threads; does not change results [default: all cores].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn part_help() -> String {
    format!("Which samples to test on: {}", Part::NAMES.join(", "))
}

/// The samples of the training data among those tested.
enum TrainedOn {
    /// This many have the same input as a training sample.
    Known(usize),
    /// The training data are not known, for this reason.
    Unknown(String),
}

impl EvaluateCommand {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let as_json = self.json;
        let (saved, data, trained, tested) = self.test(printer)?;
        if as_json {
            printer.json(&answer(&saved, &data, &trained, &tested))?;
        } else {
            show(printer, &saved, &data, &trained, &tested)?;
        }
        Ok(ExitStatus::Done)
    }

    /// The results, and all that is printed of them.
    pub(crate) fn evaluated(self, printer: &Printer) -> Result<(Evaluation, serde_json::Value)> {
        let (saved, data, trained, tested) = self.test(printer)?;
        let answer = answer(&saved, &data, &trained, &tested);
        Ok((tested.evaluation, answer))
    }

    fn test(mut self, printer: &Printer) -> Result<(Saved, NewData, TrainedOn, Tested)> {
        self.target = resolve(&self.target, printer)?;
        let (threads, resources) = (threads("--threads", self.threads, printer)?, resources()?);
        let part = self.part.as_deref().map(part_of).transpose()?;
        let foreign = self.overrides.foreign(self.model.as_deref(), self.data.as_deref())?;
        let saved = Saved::open(&self.target, self.model.as_deref(), foreign.as_ref(), &resources)?;
        saved.stale.iter().for_each(|stale| printer.warn(stale));
        let positive = saved.positive(self.positive.as_deref())?;
        let own = self.own(&saved.card);
        let (document, part) = self.document(&saved.card, part)?;
        let keys = settings(&document, printer)?.config.data;
        let is_own = matches!(&own, Ok(Some((_, own))) if format!("{own:?}") == format!("{keys:?}"));
        let part = part.or(is_own.then_some(Part::Test));
        let data = resources.load_new(&document, &keys, &saved.card, part)?;
        printer.left_out(&data.skipped);
        data.remarks().iter().for_each(|remark| printer.warn(remark));
        let samples = data.samples();
        let trained = match own {
            // Data that are used whole are not divided as in the run.
            Ok(Some(_)) if is_own && data.part != Part::All => {
                let trained = self.among(&samples, &data.dataset, &resources);
                if matches!(trained, TrainedOn::Unknown(_)) {
                    let now = "is drawn from the data as they are now, which are not known to be those of the run";
                    printer.warn(format!("the {} part {now}", data.part.name()));
                }
                trained
            }
            Ok(Some((document, keys))) => match resources.load_new(&document, &keys, &saved.card, Some(Part::Test)) {
                Ok(own) => self.among(&samples, &own.dataset, &resources),
                Err(error) => TrainedOn::Unknown(format!("the run's data cannot be read ({error})")),
            },
            Ok(None) => TrainedOn::Unknown("the model file does not name its training data".to_string()),
            Err(error) => TrainedOn::Unknown(format!("the run's configuration cannot be read ({})", told(&error))),
        };
        let (split, remarks) = saved.fit_to(&data)?;
        remarks.iter().for_each(|remark| printer.warn(remark));
        let tested = Tested::new(saved.portrait(&split, threads), &split, saved.card.classes.len(), positive);
        Ok((saved, data, trained, tested))
    }

    /// The folder of the run that the model is in, if it has one.
    fn folder(&self) -> PathBuf {
        let beside =
            self.target.parent().filter(|folder| self.target.is_file() && folder.join(names::ROUNDS).is_file());
        beside.map_or_else(|| self.target.clone(), Path::to_path_buf)
    }

    /// The configuration of the run, if the model is in its folder.
    fn own(&self, card: &Card) -> Result<Option<(Document, DataKeys)>> {
        let config = self.folder().join(names::CONFIG);
        if !config.is_file() {
            return Ok(None);
        }
        let mut document = self.of_the_run(&config)?;
        as_the_model(&mut document, card)?;
        let keys = Settings::read(&document)?.config.data;
        Ok(Some((document, keys)))
    }

    /// A run's configuration as it is, where the data are now.
    fn of_the_run(&self, config: &Path) -> Result<Document> {
        let overrides = Overrides { set: Vec::new(), ..self.overrides.clone() };
        let mut document = overrides.document(Some(config))?;
        // Its method may not be known here.
        document.remove("method");
        Ok(document)
    }

    /// How many samples have the same input as one of the run's training samples, if what was read from where its data
    /// were is what it was trained on.
    fn among(&self, samples: &Split, read: &Dataset, resources: &Resources) -> TrainedOn {
        match self.changed(read, resources) {
            Ok(None) => TrainedOn::Known(samples.shared_with(&read.train)),
            Ok(Some(reason)) => TrainedOn::Unknown(reason),
            Err(error) => {
                let reason = format!("it is not known whether the data have changed since the run ({})", told(&error));
                TrainedOn::Unknown(reason)
            }
        }
    }

    /// How the data differ from those that the run has recorded, if they do.
    fn changed(&self, read: &Dataset, resources: &Resources) -> Result<Option<String>> {
        let record = self.folder().join(names::ROUNDS);
        let then = salvage_rounds(&record)?.header.dataset_fingerprint;
        if then.is_empty() {
            bail!("{}: the run has recorded no dataset-fingerprint", record.display());
        }
        if read.fingerprint() == then {
            return Ok(None);
        }
        // As the run read them, without the model's columns and classes.
        let document = self.of_the_run(&self.folder().join(names::CONFIG))?;
        let now = resources.load(&document, &Settings::read(&document)?.config.data)?.fingerprint;
        Ok((now != then).then(|| format!("the data have changed since the run (SHA-256 was {then} and is now {now})")))
    }

    /// The configuration of the data to test on, and the part to use if it is known.
    fn document(&self, card: &Card, part: Option<Part>) -> Result<(Document, Option<Part>)> {
        let config = self.folder().join(names::CONFIG);
        let mut document = match &self.data {
            Some(what) => self.overrides.data_document(what, "--data")?,
            None if config.is_file() => self.overrides.document(Some(&config))?,
            None => {
                let example = card.origin.get("dataset").map_or("NAME", String::as_str);
                bail!("--data is missing: name the data to test on, such as --data {example}")
            }
        };
        as_the_model(&mut document, card)?;
        if !self.ignore.is_empty() {
            let known = document.table().get("data").and_then(|data| data.get("ignore")?.as_array().cloned());
            let names = self.ignore.iter().map(|name| Value::String(name.clone()));
            let all = known.unwrap_or_default().into_iter().chain(names).collect();
            document.put(&["data", "ignore"], Value::Array(all), "--ignore")?;
        }
        // Rows for testing only are all there is.
        if document.gives("data.test") && !document.gives("data.train") {
            if part == Some(Part::Train) {
                bail!("--part train: there is no data.train");
            }
            let origin = document.origin("data.test").cloned().unwrap_or(Origin::Option("--set"));
            if let Some(test) = document.remove("data.test") {
                document.put_from(&["data", "train"], test, origin)?;
            }
            return Ok((document, Some(Part::All)));
        }
        Ok((document, part))
    }
}

fn part_of(word: &str) -> Result<Part> {
    Part::from_name(word).ok_or_else(|| anyhow!("--part {word}: expected one of {}", Part::NAMES.join(", ")))
}

/// Images are read with the model's size and colours and in folders named like its classes, and tables with its label and
/// text columns, unless the configuration names others.
fn as_the_model(document: &mut Document, card: &Card) -> Result<()> {
    // How the model was trained does not matter here, and its method may not be known.
    document.remove("method");
    let Some(Value::Table(data)) = document.table().get("data") else { return Ok(()) };
    let name = data.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
    let lacks = |key: &str| !data.contains_key(key);
    let path = data.get("path").and_then(Value::as_str).filter(|_| name == "folder" && lacks("layout"));
    let layout = path.and_then(|path| FolderLayout::among(Path::new(path), &card.classes));
    let mut put: Vec<(&str, Value)> = Vec::new();
    if let Input::Image { channels, height, width } = card.input {
        if DataSource::is_scaled(&name) && lacks("size") {
            let sides = [height, width].map(|side| Value::Integer(side as i64));
            put.push(("size", Value::Array(sides.to_vec())));
        }
        if name == "folder" && lacks("colour") {
            put.push(("colour", if channels == 1 { "grey" } else { "rgb" }.into()));
        }
    }
    put.extend(layout.map(|layout| ("layout", layout.name().into())));
    if let (Some(table), "csv" | "jsonl") = (&card.table, name.as_str()) {
        if lacks("label") {
            put.push(("label", table.label.clone().into()));
        }
        if let Some(text) = table.text.as_ref().filter(|_| lacks("text")) {
            put.push(("text", text.clone().into()));
        }
    }
    for (key, value) in put {
        document.put(&["data", key], value, "MODEL")?;
    }
    Ok(())
}

/// The results of a model.
struct Tested {
    evaluation: Evaluation,
    scores: Scores,
    /// For each site that the data name, if they do.
    sites: Vec<(String, Scores)>,
    /// The class to be found, if there are two.
    positive: Option<usize>,
}

impl Tested {
    fn new(found: Portrait, split: &Split, classes: usize, positive: Option<usize>) -> Self {
        let on = |chosen: &dyn Fn(usize) -> bool| {
            let places: Vec<usize> = (0..split.len()).filter(|&i| chosen(i)).collect();
            let pairs: Vec<(u16, u16)> = places.iter().map(|&i| (split.labels[i], found.predictions[i])).collect();
            let margins: Vec<f32> = places.iter().filter_map(|&i| found.margins.get(i)).copied().collect();
            scores(&pairs, &margins, classes, positive)
        };
        let of_site = |(keys, site): (&NaturalKeys, usize)| {
            (keys.names[site].clone(), on(&|i: usize| keys.of.get(i) == Some(&(site as u32))))
        };
        let sites = split.keys.iter().flat_map(|keys| (0..keys.names.len()).map(move |site| (keys, site)));
        let sites = sites.map(of_site).filter(|(_, scores)| scores.samples > 0).collect();
        Self { scores: on(&|_| true), sites, positive, evaluation: found.evaluation }
    }
}

fn answer(saved: &Saved, data: &NewData, trained: &TrainedOn, tested: &Tested) -> serde_json::Value {
    let found = &tested.evaluation;
    let site = |(name, scores): &(String, Scores)| json!({ "site": name, "scores": view::as_json(scores) });
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
        "data": data.dataset.name,
        "part": data.part.name(),
        "samples": found.samples(),
        "trained-on": match trained {
            TrainedOn::Known(count) => Some(count),
            TrainedOn::Unknown(_) => None,
        },
        "trained-on-unknown": match trained {
            TrainedOn::Known(_) => None,
            TrainedOn::Unknown(reason) => Some(reason),
        },
        "accuracy": found.accuracy(),
        "loss": found.loss(),
        "positive": tested.positive.map(|class| &saved.card.classes[class]),
        "scores": view::as_json(&tested.scores),
        "sites": tested.sites.iter().map(site).collect::<Vec<_>>(),
        "round": saved.card.origin.get("round"),
        "chosen-by": saved.card.origin.get("chosen-by"),
        "classes": saved.card.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
    })
}

fn show(printer: &Printer, saved: &Saved, data: &NewData, trained: &TrainedOn, tested: &Tested) -> Result<()> {
    let found = &tested.evaluation;
    let (samples, name) = (found.samples() as usize, &data.dataset.name);
    let what = match data.part {
        Part::All => format!("all {}", plural(samples, "sample")),
        Part::Train => plural(samples, "training sample"),
        Part::Test => plural(samples, "test sample"),
    };
    printer.heading(&format!("{} on {what} of {name}", saved.card.model))?;
    printer.line(match trained {
        TrainedOn::Known(0) => "trained   on none of them".to_string(),
        TrainedOn::Known(count) if *count == samples => "trained   on all of them".to_string(),
        TrainedOn::Known(count) => {
            format!("trained   on {} of them, or on samples with the same input", thousands(*count))
        }
        TrainedOn::Unknown(reason) => format!("trained   perhaps on some of them: {reason}"),
    })?;
    if let (Some(round), Some(how)) = (saved.card.origin.get("round"), saved.card.origin.get("chosen-by")) {
        printer.line(format!("round     {round}, chosen by its {how}"))?;
    }
    printer.line(format!("accuracy  {}", view::percent_within(tested.scores.accuracy)))?;
    printer.line(found.loss().map_or("loss      not finite".to_string(), |loss| format!("loss      {loss:.4}")))?;
    let positive = tested.positive.map(|class| saved.card.classes[class].as_str());
    for line in view::lines(&tested.scores, positive) {
        printer.line(line)?;
    }
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
    printer.drawn(table.lines(printer))?;
    if !tested.sites.is_empty() {
        printer.line("")?;
        let table = view::by_site(&tested.sites, tested.positive.is_some());
        printer.drawn(table.lines_within(printer, terminal::width(), view::FIRST_BELOW))?;
    }
    printer.line("")?;
    printer.line("Ranges in parentheses are 95 % intervals.")?;
    Ok(())
}
