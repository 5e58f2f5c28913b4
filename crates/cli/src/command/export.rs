//! `fedelity export`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedelity_experiment::Saved;
use fedelity_nn::{Card, Input, Reading, checkpoint};
use fedelity_onnx::{OnnxModel, encode};
use fedelity_pytorch::{PyTorchModel, source};

use crate::engine::resources;
use crate::latest::resolve;
use crate::output::Overwrite;
use crate::overrides::Overrides;
use crate::printer::Printer;
use crate::status::ExitStatus;
use crate::view::units::bytes;

const EXAMPLES: &str = "\
Examples:
  fedelity export runs/a --onnx clothes.onnx
  fedelity export runs/a --safetensors clothes.safetensors
  fedelity export runs/a --pytorch clothes.py               nn.Module that loads model.safetensors
  fedelity export runs/a --onnx clothes.onnx --overwrite    replace an existing file
  fedelity export torch.safetensors --model resnet18-bn --data cifar10 --onnx planes.onnx

The ONNX file (opset 17) accepts batches of any size: 'input', normalised pixels as float32
[batch, channels, height, width] or, for texts, 'input_ids' and 'attention_mask', int64
[batch, sequence]. It returns 'logits', [batch, classes]. Its metadata hold the class names, mean,
standard deviation and tokenizer; a pixel is (value / 255 - mean) / std.
For tables, 'input' is float32 [batch, numbers], and 'columns' in the metadata says what the numbers
are, in order: (value - mean) / std for a column of numbers, and otherwise one number per category,
1 for the row's own and 0 for the others.
The safetensors file uses PyTorch's names; its metadata describe the model.
The PyTorch file is the model as Python source, with the class names, mean and standard deviation;
its first lines say how to load the weights. It needs torch and safetensors, but not Fedelity.";

/// Export a trained model for other programs, as ONNX, safetensors or PyTorch source
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Export {
    /// A run folder or a safetensors file.
    #[arg(value_name = "MODEL")]
    target: PathBuf,

    /// Write an ONNX file.
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,

    /// Write a safetensors file.
    #[arg(long, value_name = "FILE")]
    safetensors: Option<PathBuf>,

    /// Write the model as a PyTorch source file.
    #[arg(long, value_name = "FILE")]
    pytorch: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,

    /// The architecture, for a file that does not name it.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The data set, for a file that does not describe its inputs and classes.
    #[arg(long, value_name = "NAME")]
    data: Option<String>,

    #[command(flatten)]
    overrides: Overrides,
}

impl Export {
    pub(crate) fn run(mut self, printer: &Printer) -> Result<ExitStatus> {
        self.target = resolve(&self.target, printer)?;
        let files = [("--onnx", &self.onnx), ("--safetensors", &self.safetensors), ("--pytorch", &self.pytorch)];
        if files.iter().all(|(_, file)| file.is_none()) {
            bail!("nothing to write: give --onnx FILE, --safetensors FILE or --pytorch FILE");
        }
        for (option, file) in files {
            file.iter().try_for_each(|file| self.overwrite.check(option, file))?;
        }
        for (i, (option, file)) in files.iter().enumerate() {
            if let Some((other, path)) = files[..i].iter().find(|(_, other)| file.is_some() && other == file) {
                let path = path.as_deref().unwrap_or(Path::new(""));
                bail!("{other} and {option} {}: each needs a file of its own", path.display());
            }
        }
        let foreign = self.overrides.foreign(self.model.as_deref(), self.data.as_deref())?;
        let saved = Saved::open(&self.target, self.model.as_deref(), foreign.as_ref(), &resources()?)?;
        saved.stale.iter().for_each(|stale| printer.warn(stale));
        // Everything that can fail comes before the first file.
        let onnx = self.onnx.as_ref().map(|file| onnx(&saved).map(|bytes| (file, bytes))).transpose()?;
        let pytorch = self.pytorch.as_ref().map(|file| pytorch(&saved).map(|text| (file, text))).transpose()?;
        if let Some((file, bytes)) = onnx {
            self.overwrite.write("--onnx", file, &bytes)?;
            tell(printer, &saved, "ONNX", file);
        }
        if let Some(file) = &self.safetensors {
            checkpoint::save(file, saved.model.layout(), &saved.params, Some(&saved.card))?;
            tell(printer, &saved, "safetensors", file);
        }
        if let Some((file, text)) = pytorch {
            self.overwrite.write("--pytorch", file, text.as_bytes())?;
            tell(printer, &saved, "PyTorch source", file);
        }
        Ok(ExitStatus::Done)
    }
}

fn tell(printer: &Printer, saved: &Saved, what: &str, file: &Path) {
    let size = std::fs::metadata(file).map_or(0, |data| data.len());
    printer.say(format_args!("Wrote {} as {what} ({}) to {}", saved.card.model, bytes(size), file.display()));
}

fn onnx(saved: &Saved) -> Result<Vec<u8>> {
    let card = &saved.card;
    let architecture = card.architecture()?;
    let source = OnnxModel {
        architecture: &architecture,
        layout: saved.model.layout(),
        params: &saved.params,
        numbers: matches!(card.input, Input::Numbers { .. }),
        metadata: &metadata(card)?,
    };
    encode(&source).with_context(|| saved.path.display().to_string())
}

fn pytorch(saved: &Saved) -> Result<String> {
    let card = &saved.card;
    let architecture = card.architecture()?;
    let model = PyTorchModel {
        architecture: &architecture,
        numbers: matches!(card.input, Input::Numbers { .. }),
        classes: &card.classes,
        mean: &card.mean,
        std: &card.std,
        columns: card.table.as_ref().map_or(&[], |table| &table.columns),
    };
    source(&model).with_context(|| saved.path.display().to_string())
}

/// The metadata needed to use the file; lists are JSON.
fn metadata(card: &Card) -> Result<Vec<(String, String)>> {
    let mut pairs =
        vec![("model".to_string(), card.model.clone()), ("classes".to_string(), serde_json::to_string(&card.classes)?)];
    match (card.input, &card.reading) {
        (Input::Tokens { max_length, .. }, reading) => {
            pairs.push(("max-length".to_string(), max_length.to_string()));
            match reading {
                Some(Reading::Words(words)) => pairs.push(("words".to_string(), serde_json::to_string(words)?)),
                Some(Reading::Tokenizer(json)) => pairs.push(("tokenizer".to_string(), json.clone())),
                _ => {}
            }
        }
        _ => {
            pairs.push(("mean".to_string(), serde_json::to_string(&card.mean)?));
            pairs.push(("std".to_string(), serde_json::to_string(&card.std)?));
            if let Some(table) = &card.table {
                pairs.push(("columns".to_string(), serde_json::to_string(&table.columns)?));
            }
        }
    }
    pairs.extend(card.origin.iter().map(|(key, value)| (key.clone(), value.clone())));
    Ok(pairs)
}
