//! `fedelity layers`, and what `fedelity keys` says about model files.

use std::path::Path;

use anyhow::{Result, bail};
use fedelity_experiment::{Saved, is_model_file, model_file};
use fedelity_keys::{Key, Keys, Selected, Variant, nearest};
use fedelity_nn::{InputShape, LayerKeys, LayerKind, ModelFile, ModelFileKeys, ModelSpec, Stem, zoo};
use serde_json::json;

use crate::engine::resources;
use crate::latest;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::terminal;
use crate::view::units::wrap;

const EXAMPLES: &str = "\
Examples:
  fedelity layers simple-cnn > my.toml          write a file to edit
  fedelity run --set model.file=my.toml         train it
  fedelity layers resnet18-gn --stem imagenet
  fedelity layers runs/a                        the layers of a trained model
  fedelity layers my.toml                       every layer with its name, if the file is valid

fedelity keys layers explains the kinds of layers and their keys. The last dense layer, from the
features to the classes of the data, is added automatically.";

/// Print the layers of a model, as a file for model.file
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Layers {
    /// A model of the zoo, a run folder, a safetensors file or a model file.
    #[arg(value_name = "MODEL")]
    model: String,

    /// Add the projection head of MOON and FedGKD+, for a model of the zoo.
    #[arg(long)]
    projection: bool,

    /// First layers of a residual network: cifar or imagenet.
    #[arg(long, value_name = "STEM")]
    stem: Option<String>,

    /// The image to build a model of the zoo for: channels, rows and columns.
    #[arg(long, value_name = "CxHxW", default_value = "3x32x32")]
    input: String,
}

/// Classes of a model that is only printed.
const CLASSES: usize = 10;

impl Layers {
    pub(crate) fn run(self, printer: &Printer) -> Result<ExitStatus> {
        let file = self.file()?;
        printer.line(file.text().trim_end())?;
        Ok(ExitStatus::Done)
    }

    fn file(&self) -> Result<ModelFile> {
        let is_zoo = zoo::NAMES.contains(&self.model.as_str());
        if !is_zoo && (self.projection || self.stem.is_some()) {
            bail!("--projection and --stem are for models of the zoo: {}", zoo::NAMES.join(", "));
        }
        if is_zoo {
            return self.of_zoo();
        }
        let path = Path::new(&self.model);
        if is_model_file(&self.model) {
            return Ok(model_file(path)?);
        }
        let found = latest::find(path)?;
        if found.exists() {
            let saved = Saved::open(&found, None, None, &resources()?)?;
            return Ok(ModelFile::of(&saved.card.architecture()?));
        }
        let guess = nearest(&self.model, zoo::NAMES).map_or(String::new(), |name| format!("; did you mean '{name}'?"));
        bail!("{}: neither a file nor one of {}{guess}", self.model, zoo::NAMES.join(", "))
    }

    fn of_zoo(&self) -> Result<ModelFile> {
        let input = if zoo::reads_text(&self.model) {
            InputShape::Tokens { vocabulary: 1, max_length: 1 }
        } else {
            image(&self.input)?
        };
        let stem = match self.stem.as_deref() {
            Some(_) if !zoo::has_stem(&self.model) => bail!("--stem: {} has no choice of stem", self.model),
            Some(word) => match Stem::from_name(word) {
                None => bail!("--stem {word}: expected one of {}", Stem::NAMES.join(", ")),
                stem => stem,
            },
            None => None,
        };
        let spec = ModelSpec { stem, ..ModelSpec::new(&self.model, self.projection) };
        Ok(ModelFile::of(&zoo::build(&spec, input, CLASSES)?))
    }
}

/// `3x32x32`.
fn image(text: &str) -> Result<InputShape> {
    let sides: Option<Vec<usize>> = text.split('x').map(|side| side.parse().ok().filter(|&side| side > 0)).collect();
    match sides.as_deref() {
        Some(&[channels, height, width]) if [channels, height, width].iter().all(|&side| side <= 1 << 16) => {
            Ok(InputShape::Image { channels, height, width })
        }
        _ => bail!("--input {text}: expected channels, rows and columns, such as 3x32x32"),
    }
}

/// The section of `fedelity keys` about model files.
pub(crate) const SECTION: &str = "layers";

/// Explains the kinds of layers, or one of them.
pub(crate) fn explain(printer: &Printer, kind: Option<&str>, as_json: bool) -> Result<()> {
    let selector = LayerKind::SELECTOR;
    let words = selector.words();
    if let Some(kind) = kind.filter(|kind| !words.contains(kind)) {
        let guess = nearest(kind, &words).map_or(String::new(), |word| format!("; did you mean '{SECTION}.{word}'?"));
        bail!("there is no kind of layer '{kind}'; the kinds are {}{guess}", words.join(", "));
    }
    if kind.is_none() && !as_json {
        printer.heading("A model file")?;
        for key in ModelFileKeys::SCHEMA.keys {
            describe(printer, key)?;
        }
        printer.heading("A layer, such as { kind = \"conv\", out = 16, kernel = 3 }")?;
        paragraph(printer, &format!("kind: {}.", selector.about.trim_end_matches('.')))?;
        for key in LayerKeys::SCHEMA.keys {
            describe(printer, key)?;
        }
    }
    let chosen = selector.variants.iter().filter(|variant| kind.is_none_or(|kind| variant.words.contains(&kind)));
    for variant in chosen {
        if as_json {
            for key in variant.keys {
                printer.json(&as_object(variant, key))?;
            }
        } else {
            printer.heading(&format!("kind = \"{}\"", variant.words.concat()))?;
            paragraph(printer, variant.about)?;
            for key in variant.keys {
                describe(printer, key)?;
            }
        }
    }
    Ok(())
}

fn describe(printer: &Printer, key: &Key) -> Result<()> {
    let default = key.default.map_or(String::new(), |default| format!(" = {default}"));
    let about = key.about.trim_end_matches('.');
    paragraph(printer, &format!("{}{default}: {about}. Expected: {}.", key.name, key.expected()))
}

fn paragraph(printer: &Printer, text: &str) -> Result<()> {
    let width = terminal::width().min(100).saturating_sub(4);
    wrap(text, width).into_iter().try_for_each(|line| printer.line(format!("    {line}")))
}

fn as_object(variant: &Variant, key: &Key) -> serde_json::Value {
    json!({
        "key": format!("{SECTION}.{}", key.name),
        "about": key.about,
        "default": key.default,
        "expected": key.expected(),
        "with": format!("{SECTION}.kind = \"{}\"", variant.words.concat()),
    })
}
