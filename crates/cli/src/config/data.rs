//! `[data]`: which data are read, how they are normalised and changed.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use fedelity_data::augment::{Padding, RECIPES, recipe};
use fedelity_data::catalogue::Entry;
use fedelity_data::folder::Layout;
use fedelity_data::table::Format;
use fedelity_data::{Augmentation, Folder, Normalisation, OWN, Shape, Source, Table, catalogue};
use toml::Value;

use super::defaults;
use super::document::Document;
use super::section::{Section, nearest};
use super::settings::refuse_foreign;

/// Which data are read and what is done with them.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) skip_bad: bool,
    pub(crate) change: Change,
    /// What the configuration says, before the recipe and the data set.
    pub(crate) normalisation: Option<Normalisation>,
}

/// Where the changes of images come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Recipe(&'static str),
    Own(Augmentation),
}

const DATA: &[&str] = &[
    "name",
    "dir",
    "path",
    "train",
    "test",
    "test-fraction",
    "label",
    "text",
    "features",
    "key",
    "layout",
    "size",
    "colour",
    "augmentation",
    "normalisation",
    "skip-bad",
];
/// Keys that belong to some kinds of data only.
const SPECIAL: [&str; 11] =
    ["path", "train", "test", "test-fraction", "label", "text", "features", "key", "layout", "size", "colour"];
const AUGMENTATION: &[&str] = &["crop", "padding", "flip", "rotation", "cutout"];
const NORMALISATION: &[&str] = &["mean", "std"];
const COLOURS: [&str; 2] = ["rgb", "grey"];
/// The greatest side that images are scaled to.
const LARGEST_SIDE: i64 = 4_096;

impl Data {
    pub(crate) fn check(document: &Document, notes: &mut Vec<String>) -> Result<Self> {
        let section = Section::of(document, "data", DATA)?;
        let names: Vec<&str> = catalogue::entries().iter().map(|entry| entry.name).chain(OWN).collect();
        let name = section.choice("name", &names)?.unwrap_or(defaults::DATA);
        let own: &[&str] = match name {
            "csv" | "jsonl" => &["train", "test", "test-fraction", "label", "text", "features", "key"],
            "folder" => &["path", "test-fraction", "layout", "size", "colour"],
            name if scaled(name) => &["size"],
            _ => &[],
        };
        refuse_foreign(&section, ("name", name), own, &SPECIAL, notes)?;
        if OWN.contains(&name) && section.get("dir").is_some() && !document.is_from("data.dir", "FEDELITY_DATA") {
            let key = if name == "folder" { "data.path" } else { "data.train" };
            let message = format!("data.dir: not a key of data.name = \"{name}\", whose files are named by {key}");
            return Err(document.error("data.dir", message));
        }
        let fits = |share: f64| share > 0.0 && share < 1.0;
        let test_fraction = section.number("test-fraction", "a number above 0 and below 1", fits)?;
        let test_fraction = test_fraction.unwrap_or(defaults::TEST_FRACTION);
        let path = |key: &str, what: &str| -> Result<Option<PathBuf>> {
            let path = section.text(key, what)?;
            Ok(path.map(|path| document.folder_of(&section.full(key)).join(path)))
        };
        let column =
            |key: &str| -> Result<Option<String>> { Ok(section.text(key, "the name of a column")?.map(String::from)) };
        let change = change(&section)?;
        let source = match name {
            "csv" | "jsonl" => Source::Table(Table {
                format: if name == "csv" { Format::Csv } else { Format::Jsonl },
                train: path("train", "the path of a file")?.ok_or_else(|| missing(document, "data.train", name))?,
                test: path("test", "the path of a file")?,
                test_fraction,
                label: column("label")?.unwrap_or_else(|| defaults::LABEL.to_string()),
                text: column("text")?,
                features: features(&section)?,
                key: column("key")?,
            }),
            "folder" => Source::Folder(Folder {
                dir: path("path", "the path of a folder")?.ok_or_else(|| missing(document, "data.path", name))?,
                layout: section.choice("layout", &Layout::NAMES)?.and_then(Layout::from_name).unwrap_or_default(),
                size: size(&section)?,
                grey: section.choice("colour", &COLOURS)? == Some("grey"),
                test_fraction,
            }),
            _ => {
                let found = match change {
                    Change::Recipe(recipe_name) => recipe(recipe_name, name).and_then(|recipe| recipe.size),
                    Change::Own(_) => None,
                };
                let dir = path("dir", "the path of a folder")?;
                Source::Named { name: name.to_string(), dir, size: size(&section)?.or(found) }
            }
        };
        if let Change::Recipe(recipe_name) = change
            && recipe(recipe_name, name).is_none()
        {
            let known = names.iter().filter(|name| recipe(recipe_name, name).is_some());
            let known: Vec<&str> = known.copied().collect();
            let message = format!(
                "data.augmentation = \"{recipe_name}\": the recipe is for {}, not for {name}; a table says what to do, \
                 such as augmentation = {{ crop = 4, flip = true }}",
                known.join(", ")
            );
            return Err(document.error("data.augmentation", message));
        }
        Ok(Self {
            name: name.to_string(),
            source,
            skip_bad: section.flag("skip-bad")?.unwrap_or(false),
            change,
            normalisation: normalisation(&section)?,
        })
    }

    /// The random changes of images.
    pub(crate) fn augmentation(&self) -> Augmentation {
        match self.change {
            Change::Own(augmentation) => augmentation,
            Change::Recipe(name) => recipe(name, &self.name).map_or_else(Augmentation::default, |r| r.augmentation),
        }
    }

    /// How inputs are normalised, if otherwise than the data set says.
    pub(crate) fn normalisation(&self) -> Option<Normalisation> {
        let of_recipe = || match self.change {
            Change::Own(_) => None,
            Change::Recipe(name) => recipe(name, &self.name)?.normalisation,
        };
        self.normalisation.clone().or_else(of_recipe)
    }

    /// Keys and values, as a configuration writes them.
    pub(crate) fn pairs(&self) -> Vec<(String, Value)> {
        let text = |text: &str| Value::String(text.to_string());
        let path = |path: &PathBuf| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Value::String(path.display().to_string())
        };
        let sides = |(height, width): (usize, usize)| {
            Value::Array(vec![Value::Integer(height as i64), Value::Integer(width as i64)])
        };
        let mut pairs = vec![("name", text(&self.name))];
        match &self.source {
            Source::Named { dir, size, .. } => {
                pairs.extend(dir.as_ref().map(|dir| ("dir", path(dir))));
                pairs.extend(size.map(|size| ("size", sides(size))));
            }
            Source::Folder(folder) => {
                pairs.push(("path", path(&folder.dir)));
                pairs.push(("layout", text(folder.layout.name())));
                pairs.extend(folder.size.map(|size| ("size", sides(size))));
                pairs.push(("colour", text(COLOURS[usize::from(folder.grey)])));
                pairs.push(("test-fraction", Value::Float(folder.test_fraction)));
            }
            Source::Table(table) => {
                pairs.push(("train", path(&table.train)));
                pairs.extend(table.test.as_ref().map(|test| ("test", path(test))));
                if table.test.is_none() {
                    pairs.push(("test-fraction", Value::Float(table.test_fraction)));
                }
                pairs.push(("label", text(&table.label)));
                pairs.extend(table.text.as_ref().map(|column| ("text", text(column))));
                let list = |names: &Vec<String>| Value::Array(names.iter().map(|name| text(name)).collect());
                pairs.extend(table.features.as_ref().map(|names| ("features", list(names))));
                pairs.extend(table.key.as_ref().map(|key| ("key", text(key))));
            }
        }
        match self.change {
            Change::Recipe(name) => pairs.push(("augmentation", text(name))),
            Change::Own(own) => {
                let mut table = toml::Table::new();
                table.insert("crop".to_string(), Value::Integer(own.crop as i64));
                table.insert("padding".to_string(), text(own.padding.name()));
                table.insert("flip".to_string(), Value::Boolean(own.flip));
                table.insert("rotation".to_string(), Value::Float(f64::from(own.rotation)));
                table.insert("cutout".to_string(), Value::Integer(own.cutout as i64));
                pairs.push(("augmentation", Value::Table(table)));
            }
        }
        if let Some(normalisation) = &self.normalisation {
            let mut table = toml::Table::new();
            for (key, values) in [("mean", &normalisation.mean), ("std", &normalisation.std)] {
                // The shortest decimal of a f32 reads back as the same f32.
                let decimal = |value: &f32| Value::Float(value.to_string().parse().unwrap_or(f64::from(*value)));
                table.insert(key.to_string(), Value::Array(values.iter().map(decimal).collect()));
            }
            pairs.push(("normalisation", Value::Table(table)));
        }
        if self.skip_bad {
            pairs.push(("skip-bad", Value::Boolean(true)));
        }
        pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// The entry of a name, or the nearest name.
pub(crate) fn find(name: &str) -> Result<&'static Entry> {
    let names: Vec<&str> = catalogue::entries().iter().map(|entry| entry.name).collect();
    let begins: Vec<&str> = names.iter().filter(|known| known.starts_with(&format!("{name}-"))).copied().collect();
    catalogue::find(name).map_err(|error| match nearest(name, &names) {
        _ if !begins.is_empty() => anyhow!("{error}; did you mean one of {}?", begins.join(", ")),
        Some(guess) => anyhow!("{error}; did you mean '{guess}'?"),
        None => anyhow!("{error}"),
    })
}

/// Whether a set of the catalogue is read from image files, which can be scaled.
fn scaled(name: &str) -> bool {
    matches!(name, "cinic10" | "tiny-imagenet")
}

fn missing(document: &Document, key: &str, name: &str) -> anyhow::Error {
    document.error("data.name", format!("data.name = \"{name}\" needs {key}"))
}

fn features(section: &Section<'_>) -> Result<Option<Vec<String>>> {
    let Some(value) = section.get("features") else { return Ok(None) };
    let names = value.as_array().map(|items| items.iter().map(|item| item.as_str().map(String::from)).collect());
    match names {
        Some(Some(names)) if !Vec::<String>::is_empty(&names) => Ok(Some(names)),
        _ => Err(section.refuse("features", value, "a list of column names, such as [\"age\", \"weight\"]")),
    }
}

fn size(section: &Section<'_>) -> Result<Option<(usize, usize)>> {
    let Some(value) = section.get("size") else { return Ok(None) };
    let side = |value: &Value| value.as_integer().filter(|side| (1..=LARGEST_SIDE).contains(side));
    match value.as_array().map(Vec::as_slice) {
        Some([height, width]) if side(height).is_some() && side(width).is_some() => {
            Ok(side(height).zip(side(width)).map(|(height, width)| (height as usize, width as usize)))
        }
        _ => Err(section.refuse("size", value, &format!("[height, width], each 1 to {LARGEST_SIDE}"))),
    }
}

fn change(section: &Section<'_>) -> Result<Change> {
    let Some(value) = section.get("augmentation") else { return Ok(Change::Recipe(defaults::AUGMENTATION)) };
    if !value.is_table() {
        return Ok(Change::Recipe(section.choice("augmentation", &RECIPES)?.unwrap_or(defaults::AUGMENTATION)));
    }
    let inner = section.inner("augmentation", AUGMENTATION)?;
    let degrees = |degrees: f64| (0.0..=180.0).contains(&degrees);
    let padding = inner.choice("padding", &Padding::NAMES)?.and_then(Padding::from_name);
    Ok(Change::Own(Augmentation {
        crop: inner.count("crop", 0)?.unwrap_or(0),
        padding: padding.unwrap_or_default(),
        flip: inner.flag("flip")?.unwrap_or(false),
        rotation: inner.number("rotation", "0 to 180 degrees", degrees)?.unwrap_or(0.0) as f32,
        cutout: inner.count("cutout", 0)?.unwrap_or(0),
    }))
}

fn normalisation(section: &Section<'_>) -> Result<Option<Normalisation>> {
    let Some(value) = section.get("normalisation") else { return Ok(None) };
    let allowed = "a table, such as { mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }, one number a channel";
    if !value.is_table() {
        return Err(section.refuse("normalisation", value, allowed));
    }
    let inner = section.inner("normalisation", NORMALISATION)?;
    let numbers = |key: &str, fits: &dyn Fn(f32) -> bool| -> Option<Vec<f32>> {
        let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        let numbers: Option<Vec<f32>> =
            inner.get(key)?.as_array()?.iter().map(|value| number(value).map(|x| x as f32)).collect();
        numbers.filter(|numbers| !numbers.is_empty() && numbers.iter().all(|&x| x.is_finite() && fits(x)))
    };
    match (numbers("mean", &|_| true), numbers("std", &|std| std > 0.0)) {
        (Some(mean), Some(std)) if mean.len() == std.len() => Ok(Some(Normalisation { mean, std })),
        _ => Err(section.refuse("normalisation", value, &format!("{allowed}, std above 0"))),
    }
}

/// Why a normalisation does not fit data of this shape, if it does not.
pub(crate) fn unfit(normalisation: &Normalisation, shape: Shape) -> Option<String> {
    match shape {
        Shape::Image(shape) if normalisation.mean.len() == shape.channels => None,
        Shape::Image(shape) => Some(format!(
            "data.normalisation has {} numbers, but the images have {} channels",
            normalisation.mean.len(),
            shape.channels
        )),
        other => Some(format!("data.normalisation is for images, and the data are {other}")),
    }
}
