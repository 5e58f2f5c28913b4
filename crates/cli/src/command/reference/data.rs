//! The data sets of the catalogue, and how published code treats them.

use fedelity_data::augment::Recipe;
use fedelity_data::{Augmentation, SetName, Shape};
use fedelity_keys::Keys;

use super::keys::{HEAD, key_row};
use super::markdown::{Markdown, code, plain};
use crate::view::units::thousands;

/// Every data set, then every recipe of augmentation.
pub(super) fn page() -> Markdown {
    let mut page = Markdown::new("Every data set and recipe");
    page.paragraph(
        "The data sets of `data.name`; `fedelity data fetch NAME` downloads one, and `fedelity data show NAME` lists its \
         files. Your own data are [images](../own-images.md), [tables](../own-tables.md) or [texts](../own-texts.md).",
    );
    let number = |n: Option<usize>| n.map_or(String::new(), thousands);
    let rows = SetName::ALL.map(|set| {
        let entry = set.entry();
        let sample = match entry.shape.image() {
            Some(shape) => format!("{}x{}x{}", shape.channels, shape.height, shape.width),
            None => "text".to_string(),
        };
        let about = format!("{}: {}. Licence: {}.", plain(entry.title), plain(entry.task), plain(entry.licence));
        [code(entry.name), sample, entry.classes.to_string(), number(entry.train), number(entry.test), about]
    });
    page.table(["name", "sample", "classes", "training", "test", "what it is"], rows);
    page.section("Recipes of augmentation");
    page.paragraph(
        "`data.augmentation` names what published code does with a data set: random changes of the training images, and \
         the mean and standard deviation that all images are normalised with. [Augmentation](../augmentation.md) explains \
         the changes. A recipe cannot be used with other data sets.",
    );
    let mut rows = Vec::new();
    for recipe in Recipe::ALL.into_iter().filter(|recipe| *recipe != Recipe::None) {
        for set in SetName::ALL.into_iter().filter(|set| set.entry().shape != Shape::Text) {
            let Some(treatment) = recipe.of(Some(set)) else { continue };
            let size = treatment.size.map_or(String::new(), |(height, width)| format!(", scaled to {height}x{width}"));
            let numbers = treatment.normalisation.unwrap_or_default();
            let list = |values: &[f32]| values.iter().map(|x| format!("{x:.4}")).collect::<Vec<_>>().join(", ");
            rows.push([
                code(recipe.name()),
                code(set.name()),
                format!("{}{size}", changes(&treatment.augmentation)),
                list(&numbers.mean),
                list(&numbers.std),
            ]);
        }
    }
    page.table(["recipe", "data set", "training images", "mean", "standard deviation"], rows);
    page.section("A recipe of your own");
    page.paragraph(
        "`data.augmentation` can also be a table, such as `{ crop = 4, padding = \"reflect\", flip = true }`, for any \
         images:",
    );
    page.table(HEAD, Augmentation::SCHEMA.keys.iter().map(key_row));
    page
}

/// The changes of a recipe, in words.
fn changes(how: &Augmentation) -> String {
    let mut words = Vec::new();
    if how.crop > 0 {
        words.push(format!("crop {} ({})", how.crop, how.padding.name()));
    }
    if how.flip {
        words.push("flip".to_string());
    }
    if how.rotation > 0.0 {
        words.push(format!("rotation {}", how.rotation));
    }
    if how.cutout > 0 {
        words.push(format!("cutout {}", how.cutout));
    }
    if words.is_empty() { "unchanged".to_string() } else { words.join(", ") }
}
