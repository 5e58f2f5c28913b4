//! The keys of configurations, sweeps and model files.

use fedelity_experiment::{Config, Preset, Sweep};
use fedelity_keys::{Key, Keys, Schema, Selected, ValueType};
use fedelity_nn::{LayerKeys, LayerKind, ModelFileKeys};

use super::super::keys::{Placed, list};
use super::markdown::{Markdown, code, plain};

/// Every key of a configuration and of a sweep.
pub(super) fn configuration() -> Markdown {
    let mut page = Markdown::new("Every key");
    page.paragraph(
        "A configuration is a TOML file. Every key is optional: without it, the default applies. `fedelity keys KEY` \
         prints the same, `fedelity init` writes a file with every key in it, and `--set KEY=VALUE` changes a key for \
         one command. The keys of a method are in [Every method](methods.md), those of a layer in [Every kind of \
         layer](layers.md).",
    );
    let mut all = Vec::new();
    list("", Config::SCHEMA, &mut all);
    page.section("Outside the sections");
    page.table(HEAD, all.iter().filter(|placed| !placed.path.contains('.')).map(|placed| row(placed, &placed.path)));
    for key in Config::SCHEMA.keys.iter().filter(|key| matches!(key.value, ValueType::Table(_))) {
        page.section(&format!("`[{}]`", key.name));
        page.paragraph(&plain(key.about));
        let start = format!("{}.", key.name);
        let below = all.iter().filter_map(|placed| Some((placed, placed.path.strip_prefix(&start)?)));
        page.table(HEAD, below.map(|(placed, name)| row(placed, name)));
    }
    page.section("A sweep file");
    page.paragraph("[Sweeps and tuning](../sweeps.md) has examples.");
    nested(&mut page, "", Sweep::KEYS);
    page.section("A preset");
    page.paragraph("[Published tables](../reproduce.md) has an example.");
    nested(&mut page, "", Preset::KEYS);
    for (name, schema) in Preset::PARTS {
        page.paragraph(&format!("`[[{name}]]`:"));
        let selectors = schema.selectors.iter().map(|one| {
            let words: Vec<String> = one.words().iter().map(|word| code(word)).collect();
            let default = one.default.map_or(String::new(), code);
            [code(one.name), default, format!("{} One of {}.", plain(one.about), words.join(", "))]
        });
        let own = schema.selectors.iter().flat_map(|one| one.variants).flat_map(|variant| variant.keys);
        page.table(HEAD, schema.keys.iter().map(key_row).chain(selectors).chain(own.map(key_row)));
    }
    page
}

/// Every kind of layer of a model file.
pub(super) fn layers() -> Markdown {
    let mut page = Markdown::new("Every kind of layer");
    page.paragraph(
        "A model file has the layers of a model as data; [Your own model](../own-model.md) has examples. `fedelity keys \
         layers` prints the same.",
    );
    page.section("A model file");
    page.table(HEAD, ModelFileKeys::SCHEMA.keys.iter().map(key_row));
    page.section("Every layer");
    let selector = LayerKind::SELECTOR;
    let kinds: Vec<String> = selector.words().iter().map(|word| code(word)).collect();
    let kind = [code(selector.name), String::new(), format!("{} One of {}.", plain(selector.about), kinds.join(", "))];
    page.table(HEAD, [kind].into_iter().chain(LayerKeys::SCHEMA.keys.iter().map(key_row)));
    for variant in selector.variants {
        page.section(&code(&variant.words.concat()));
        page.paragraph(&plain(variant.about));
        page.table(HEAD, variant.keys.iter().map(key_row));
    }
    page
}

pub(super) const HEAD: [&str; 3] = ["key", "default", "what it is"];

/// The keys of a table, and of the tables in it.
fn nested(page: &mut Markdown, at: &str, schema: &Schema) {
    page.table(HEAD, schema.keys.iter().map(key_row));
    for key in schema.keys {
        if let ValueType::Table(inner) = key.value {
            page.paragraph(&format!("`[{at}{}]`:", key.name));
            nested(page, &format!("{at}{}.", key.name), inner);
        }
    }
}

fn row(placed: &Placed, name: &str) -> [String; 3] {
    let only = placed.condition().map(|with| format!(" Only with {}.", code(&with)));
    let facts = format!("Expected: {}.{}", plain(&placed.expected), only.unwrap_or_default());
    [code(name), placed.default.map_or(String::new(), code), format!("{} {facts}", plain(placed.about))]
}

pub(super) fn key_row(key: &Key) -> [String; 3] {
    row(&Placed::new(key.name.to_string(), key, None), key.name)
}
