//! The models of the zoo, layer by layer.

use anyhow::Result;
use fedelity_nn::zoo::{self, ZooModel};

use super::super::models::{Assumed, build, shown, sizes};
use super::markdown::{Markdown, code, plain};
use crate::view::units::{bytes, thousands};

/// The images that the page assumes.
const DATA: &str = "cifar10";

/// Every model with its size, then every layer of each.
pub(super) fn page() -> Result<Markdown> {
    let assumed = Assumed::of(DATA, None, None)?;
    let mut page = Markdown::new("Every model");
    page.paragraph(&format!(
        "The models of `model.name`, for images of {} and for texts of {}, with {} classes. `fedelity models NAME --data \
         DATA` prints the layers for other data, and `fedelity layers NAME` as a file to change: see [Your own \
         model](../own-model.md). The names of the tensors are those of PyTorch's modules.",
        shown(assumed.image),
        shown(assumed.text),
        assumed.classes
    ));
    let mut table = Vec::new();
    let mut details = Vec::new();
    for model in zoo::MODELS {
        let (arch, built) = build(model.name, false, assumed)?;
        table.push([
            format!("[{}](#{})", code(model.name), model.name),
            thousands(built.layout().trainable_len()),
            bytes(4 * built.layout().len() as u64),
            thousands(built.multiply_adds()),
        ]);
        details.push((model, built.layers(&arch), sizes(&built), shown(arch.input)));
    }
    page.table(["model", "weights", "size", "multiply-adds per input"], table);
    for (model, layers, size, input) in details {
        start(&mut page, model, &size);
        let first = [String::new(), "input".to_string(), input, String::new()];
        let rows = layers.iter().map(|layer| {
            let numbers = if layer.numbers == 0 { String::new() } else { thousands(layer.numbers) };
            let name = if layer.name.is_empty() { String::new() } else { code(&layer.name) };
            [name, format!("{}{}", "&emsp;".repeat(layer.depth), layer.what), layer.output.clone(), numbers]
        });
        page.table(["name", "layer", "output", "weights"], [first].into_iter().chain(rows));
    }
    Ok(page)
}

fn start(page: &mut Markdown, model: &ZooModel, size: &str) {
    let mut summary = model.summary.chars();
    let first: String = summary.next().into_iter().flat_map(char::to_uppercase).collect();
    page.section(&code(model.name));
    page.paragraph(&plain(&format!("{first}{}. {size}.", summary.as_str())));
}
