//! Model files, their layers, encoders and tokenizers.

use std::path::Path;

use fedelity_data::{Inputs, Split};
use fedelity_experiment::{Resources, Saved, TextReader, model_file};
use fedelity_nn::{Input, InputShape, Model, ModelFile, ModelSpec, Pretrained, checkpoint, cpu, encoder, zoo};
use fedelity_onnx::OnnxModel;
use fedelity_pytorch::PyTorchModel;
use fedelity_text::Tokenizer;

use crate::Read;
use crate::place::{Place, seed};

/// Models with more weights or inputs are read, but not run.
const SMALL: usize = 100_000;

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A file that describes its model. It is run on one sample, and written in other forms.
pub(crate) fn model() -> Read {
    let (place, resources) = (Place::with(&[]), Resources::default());
    Box::new(move |bytes| {
        place.write("model.safetensors", bytes);
        let saved = Saved::open(&place.file("model.safetensors"), None, None, &resources).map_err(said)?;
        let arch = saved.card.architecture().map_err(said)?;
        if saved.params.len() > SMALL || saved.model.multiply_adds() > 100 * SMALL {
            return Ok(());
        }
        let (classes, numbers) = (&saved.card.classes, matches!(saved.card.input, Input::Numbers { .. }));
        let inputs = match saved.card.input {
            Input::Image { channels, height, width } => Inputs::Bytes(vec![7; channels * height * width]),
            Input::Numbers { width } => Inputs::Floats(vec![0.5; width]),
            Input::Tokens { .. } => {
                let reader = TextReader::of(&saved.card, &saved.path).map_err(said)?;
                Inputs::Tokens(reader.encode(&["Good films, a [MASK]\u{e9}".to_string()]).map_err(said)?)
            }
            _ => return Ok(()),
        };
        let logits = saved.logits(&Split { inputs, labels: vec![0], keys: None }, 1);
        assert_eq!(logits.len(), classes.len());
        let (mean, std) = (&saved.card.mean[..], &saved.card.std[..]);
        let columns = saved.card.table.as_ref().map_or(&[][..], |table| &table.columns);
        let _ = fedelity_pytorch::source(&PyTorchModel { architecture: &arch, numbers, classes, mean, std, columns });
        let (layout, params, metadata) = (saved.model.layout(), &saved.params[..], &[][..]);
        let _ = fedelity_onnx::encode(&OnnxModel { architecture: &arch, layout, params, numbers, metadata });
        Ok(())
    })
}

/// A file with the weights of a known model, as other programs write it.
pub(crate) fn weights() -> Read {
    let place = Place::with(&[]);
    let input = InputShape::Image { channels: 1, height: 1, width: 4 };
    let arch = zoo::build(&ModelSpec::new("logistic", false), input, 3).expect("a model of the zoo");
    let model = Model::compile(&arch, cpu()).expect("a small model");
    Box::new(move |bytes| {
        place.write("a.safetensors", bytes);
        let path = place.file("a.safetensors");
        let _ = checkpoint::card(&path);
        let params = checkpoint::load(&path, model.layout()).map_err(said)?;
        assert_eq!(params.len(), model.layout().len());
        Ok(())
    })
}

/// A model of one's own, on inputs of several kinds.
pub(crate) fn layers() -> Read {
    let place = Place::with(&[]);
    let inputs = [
        InputShape::Image { channels: 1, height: 28, width: 28 },
        InputShape::Image { channels: 3, height: 9, width: 7 },
        InputShape::Image { channels: 1, height: 1, width: 6 },
        InputShape::Tokens { vocabulary: 50, max_length: 12 },
    ];
    Box::new(move |bytes| {
        place.write("layers.toml", bytes);
        let file = model_file(&place.file("layers.toml")).map_err(said)?;
        assert_eq!(ModelFile::parse(&file.text()).as_ref(), Ok(&file), "it comes back");
        let _ = (file.reads_text(), file.positions(), file.needs_start_token());
        for input in inputs {
            for projection in [false, true] {
                match file.architecture("own", input, 3, projection) {
                    Ok(arch) => {
                        let model = Model::compile(&arch, cpu());
                        // Only the layers before a projection have been checked.
                        assert!(model.is_ok() || projection, "{model:?}");
                    }
                    Err(misfit) => drop((misfit.to_string(), misfit.place.key())),
                }
            }
        }
        Ok(())
    })
}

pub(crate) fn encoder_config() -> Read {
    pretrained("config.json")
}

pub(crate) fn encoder_weights() -> Read {
    pretrained("model.safetensors")
}

/// A folder with a trained encoder, of which one file varies.
fn pretrained(name: &'static str) -> Read {
    let (config, weights) = (seed("encoder-config/valid-bert.json"), seed("encoder-weights/valid-bert.safetensors"));
    let place = Place::with(&[("config.json", &config), ("model.safetensors", &weights)]);
    Box::new(move |bytes| {
        place.write(name, bytes);
        let found = Pretrained::open(place.folder()).map_err(said)?;
        let input = Input::Tokens { vocabulary: found.vocabulary(), max_length: found.shape().positions }.shape();
        for freeze in [None, Some(1)] {
            let arch = encoder("own", found.shape(), false, freeze, input, 2);
            Model::compile(&arch, cpu()).and_then(|model| found.load(model)).map_err(said)?;
        }
        Ok(())
    })
}

pub(crate) fn tokenizer() -> Read {
    let place = Place::with(&[]);
    let texts = ["", "Good films, a \u{e9}\u{301}\u{4e2d}!", "[CLS] a ##s \u{1f600}\0\r\n zzz"].map(String::from);
    Box::new(move |bytes| {
        place.write("tokenizer.json", bytes);
        let config = Path::new("config.json");
        let tokenizer = Tokenizer::open(&place.file("tokenizer.json"), 50, config, 8).map_err(said)?;
        let tokens = tokenizer.encode(&texts).map_err(said)?;
        assert!(tokens.ids.iter().all(|&id| id < 50) && tokens.len() == texts.len());
        Ok(())
    })
}
