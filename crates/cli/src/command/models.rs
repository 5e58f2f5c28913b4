//! `fedelity models`.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use fedelity_data::{ImageShape, SetName};
use fedelity_experiment::{Document, Saved, Settings, is_model_file, own_architecture};
use fedelity_keys::nearest;
use fedelity_nn::zoo;
use fedelity_nn::{Architecture, InputShape, ListedLayer, Model, ModelSpec};
use serde_json::json;

use crate::engine::resources;
use crate::latest;
use crate::overrides::find;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::table::{Align, Table};
use crate::view::terminal;
use crate::view::units::{bytes, thousands, wrap};

const EXAMPLES: &str = "\
Examples:
  fedelity models                                 all models with their sizes, for 28x28 grey images
  fedelity models --data cifar10                  the same, for the images and classes of CIFAR-10
  fedelity models resnet18-gn --data cifar10      every layer, its output and its weights
  fedelity models mlp --input 1x1x12 --classes 2  for a table with 12 columns
  fedelity models my.toml --data cifar10          the same for a model of your own
  fedelity models runs/latest                     the model of a run, for its own data

Sizes depend on the input: channels, height and width of an image. A model that does not fit the
input has no size. Text models are shown with the default vocabulary and length of a configuration.";

/// List the models, or the layers of one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Models {
    /// The model whose layers to list: a name, a model file, a run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    name: Option<String>,

    /// The data set whose inputs and classes to assume.
    #[arg(long, value_name = "NAME", default_value = "fashion-mnist-mini")]
    data: String,

    /// The size of an input, instead of the data set's.
    #[arg(long, value_name = "CxHxW")]
    input: Option<String>,

    /// The number of classes, instead of the data set's.
    #[arg(long, value_name = "N")]
    classes: Option<usize>,

    /// Add a projection head, as model.projection does.
    #[arg(long)]
    projection: bool,

    /// Print one JSON object per model.
    #[arg(long)]
    json: bool,
}

/// The inputs that are assumed for models of images and of texts.
#[derive(Clone, Copy)]
pub(super) struct Assumed {
    pub(super) image: InputShape,
    pub(super) text: InputShape,
    pub(super) classes: usize,
}

impl Models {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let assumed = Assumed::of(&self.data, self.input.as_deref(), self.classes)?;
        if let Some(name) = &self.name {
            let (arch, summary) = self.chosen(name, assumed)?;
            let built = Model::compile(&arch, resources()?.engine)?;
            self.explain(printer, &summary, &arch, &built)?;
            return Ok(ExitStatus::Done);
        }
        let mut table = Table::new(&[
            ("model", Align::Left),
            ("weights", Align::Right),
            ("size", Align::Right),
            ("multiply-adds", Align::Right),
        ]);
        for model in zoo::MODELS {
            let built = build(model.name, self.projection, assumed);
            if self.json {
                let (sizes, reason) = match &built {
                    Ok((_, built)) => (Some(built), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                printer.json(&json!({
                    "model": model.name,
                    "summary": model.summary,
                    "input": shown(assumed.input_of(model.name)),
                    "classes": assumed.classes,
                    "weights": sizes.map(|built| built.layout().trainable_len()),
                    "bytes": sizes.map(|built| 4 * built.layout().len()),
                    "multiply-adds": sizes.map(Model::multiply_adds),
                    "reason": reason,
                }))?;
                continue;
            }
            table.row(match built {
                Ok((_, built)) => [
                    model.name.to_string(),
                    thousands(built.layout().trainable_len()),
                    bytes(4 * built.layout().len() as u64),
                    thousands(built.multiply_adds()),
                ],
                Err(_) => [model.name, "-", "-", "-"].map(String::from),
            });
        }
        if !self.json {
            self.list(printer, &table, assumed)?;
        }
        Ok(ExitStatus::Done)
    }

    /// The layers of a model that is named, and what it is.
    fn chosen(&self, name: &str, assumed: Assumed) -> Result<(Architecture, String)> {
        if let Some(model) = zoo::MODELS.iter().find(|model| model.name == name) {
            let spec = ModelSpec::new(name, self.projection);
            return Ok((zoo::build(&spec, assumed.input_of(name), assumed.classes)?, model.summary.to_string()));
        }
        let path = Path::new(name);
        if is_model_file(name) {
            let Assumed { image, text, classes } = assumed;
            let arch = own_architecture(path, image, text, classes, self.projection)?;
            return Ok((arch, format!("A model of your own, from {name}.")));
        }
        let found = latest::find(path)?;
        if !found.exists() {
            return Err(unknown(name));
        }
        if self.projection || self.input.is_some() || self.classes.is_some() {
            bail!(
                "{name}: a trained model has its own input, classes and layers: leave out --input, --classes and --projection"
            );
        }
        let saved = Saved::open(&found, None, None, &resources()?)?;
        Ok((saved.card.architecture()?, format!("The trained model in {}.", saved.path.display())))
    }

    fn list(&self, printer: &Printer, table: &Table, assumed: Assumed) -> Result<()> {
        for model in zoo::MODELS {
            labelled(printer, model.name, model.summary)?;
        }
        printer.line("")?;
        printer.drawn(table.lines(printer))?;
        printer.line("")?;
        let text = format!(
            "For inputs of {} and {} classes; texts of {}. -: the model does not fit. fedelity models NAME lists its \
             layers.",
            shown(assumed.image),
            assumed.classes,
            shown(assumed.text)
        );
        wrap(&text, terminal::width().min(100)).iter().try_for_each(|line| printer.line(line))
    }

    fn explain(&self, printer: &Printer, summary: &str, arch: &Architecture, built: &Model) -> Result<()> {
        let layers = built.layers(arch);
        if self.json {
            let layer = |layer: &ListedLayer| {
                json!({
                    "name": layer.name,
                    "layer": layer.what,
                    "depth": layer.depth,
                    "output": layer.output,
                    "numbers": layer.numbers,
                })
            };
            return printer.json(&json!({
                "model": arch.name,
                "summary": summary,
                "input": shown(arch.input),
                "classes": arch.classes,
                "weights": built.layout().trainable_len(),
                "bytes": 4 * built.layout().len(),
                "multiply-adds": built.multiply_adds(),
                "layers": layers.iter().map(layer).collect::<Vec<_>>(),
            }));
        }
        printer.heading(&arch.name)?;
        for line in wrap(summary, terminal::width().min(100)) {
            printer.line(line)?;
        }
        printer.line("")?;
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("layer", Align::Left),
            ("output", Align::Left),
            ("weights", Align::Right),
        ]);
        table.row(["".to_string(), "input".to_string(), shown(arch.input), "-".to_string()]);
        for layer in &layers {
            let numbers = if layer.numbers == 0 { "-".to_string() } else { thousands(layer.numbers) };
            let what = format!("{}{}", "  ".repeat(layer.depth), layer.what);
            table.row([layer.name.clone(), what, layer.output.clone(), numbers]);
        }
        printer.drawn(table.lines(printer))?;
        printer.line("")?;
        printer.line(sizes(built))
    }
}

/// A name and a text next to it, with following lines aligned to the first.
pub(super) fn labelled(printer: &Printer, name: &str, text: &str) -> Result<()> {
    const INDENT: usize = 17;
    for (i, line) in wrap(text, terminal::width().min(100).saturating_sub(INDENT)).iter().enumerate() {
        printer.line(format!("{:<INDENT$}{line}", if i == 0 { name } else { "" }))?;
    }
    Ok(())
}

impl Assumed {
    /// The inputs and classes of a data set, or those given.
    pub(super) fn of(data: &str, input: Option<&str>, classes: Option<usize>) -> Result<Self> {
        let entry = find(data)?;
        let image = match input {
            Some(text) => sides(text)?,
            None => {
                // For texts, image models are shown with the default data.
                let shape = entry.shape.image().or(SetName::FashionMnistMini.entry().shape.image());
                let Some(ImageShape { channels, height, width }) = shape else {
                    bail!("--data {data}: its samples are not images; name a size with --input");
                };
                InputShape::Image { channels, height, width }
            }
        };
        let mut document = Document::default();
        document.put(&["model", "name"], "lstm".into(), "NAME")?;
        let keys = Settings::read(&document)?.config.model;
        let (vocabulary, max_length) = (keys.vocabulary.unwrap_or_default(), keys.max_length.unwrap_or_default());
        match classes.unwrap_or(entry.classes) {
            n @ (0 | 65_536..) => bail!("--classes {n}: expected a whole number from 1 to 65535"),
            classes => Ok(Self { image, text: InputShape::Tokens { vocabulary, max_length }, classes }),
        }
    }

    fn input_of(&self, name: &str) -> InputShape {
        if zoo::reads_text(name) { self.text } else { self.image }
    }
}

/// A model of the zoo for the assumed inputs.
pub(super) fn build(name: &str, projection: bool, assumed: Assumed) -> Result<(Architecture, Model)> {
    let spec = ModelSpec::new(name, projection);
    let arch = zoo::build(&spec, assumed.input_of(name), assumed.classes)?;
    let model = Model::compile(&arch, resources()?.engine)?;
    Ok((arch, model))
}

/// The size of a model, in words.
pub(super) fn sizes(built: &Model) -> String {
    let (all, trained) = (built.layout().len(), built.layout().trainable_len());
    let fixed =
        if all > trained { format!(" and {} running statistics", thousands(all - trained)) } else { String::new() };
    format!(
        "{} weights{fixed}, {}, {} multiply-adds per input",
        thousands(trained),
        bytes(4 * all as u64),
        thousands(built.multiply_adds())
    )
}

pub(super) fn shown(input: InputShape) -> String {
    match input {
        InputShape::Image { channels, height, width } => format!("{channels}x{height}x{width}"),
        InputShape::Tokens { vocabulary, max_length } => {
            format!("{max_length} tokens, {} words", thousands(vocabulary))
        }
    }
}

/// Channels, height and width.
fn sides(text: &str) -> Result<InputShape> {
    let wrong = || anyhow!("--input {text}: expected channels, height and width, each 1 to 4096, such as 3x32x32");
    let sides: Vec<usize> = text
        .split('x')
        .map(|side| side.parse().ok().filter(|n| (1..=4_096).contains(n)))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let [channels, height, width] = sides[..] else { return Err(wrong()) };
    Ok(InputShape::Image { channels, height, width })
}

fn unknown(name: &str) -> anyhow::Error {
    let guess = nearest(name, zoo::NAMES).map_or(String::new(), |guess| format!("; did you mean '{guess}'?"));
    let models = zoo::NAMES.join(", ");
    anyhow!("there is no model '{name}'; the models are {models}; a model file ends in .toml{guess}")
}
