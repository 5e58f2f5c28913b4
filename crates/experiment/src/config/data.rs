//! `[data]`: which data are used, and how they are prepared.

use fedelity_data::augment::{Recipe, Treatment};
use fedelity_data::{Augmentation, DataSource, Normalisation, SetName};
use fedelity_keys::{KeyError, Keys, Typed, ValueType, keys};

#[keys(check = unfit)]
pub struct DataKeys {
    #[key(flatten)]
    pub source: DataSource,
    /// Augmentation of training images: that of a published code base for the data set, or a table such as
    /// { crop = 4, padding = "reflect", flip = true, rotation = 15, cutout = 16 }.
    #[key(default = "none")]
    pub augmentation: Change,
    /// Mean and standard deviation of each channel, instead of the recipe's or the data set's.
    pub normalisation: Option<Normalisation>,
    /// Whether to skip and count images and rows that cannot be used, instead of stopping at the first one.
    #[key(default = false)]
    pub skip_bad: bool,
}

/// Where the augmentation comes from.
#[derive(Clone, Copy, Debug, PartialEq, serde::Deserialize)]
#[serde(untagged)]
pub enum Change {
    Recipe(Recipe),
    Own(Augmentation),
}

impl Typed for Change {
    const TYPE: ValueType = ValueType::Either(&[Recipe::TYPE, ValueType::Table(Augmentation::SCHEMA)]);
}

impl DataKeys {
    /// The recipe's treatment of the data, if there is a recipe.
    fn treatment(&self) -> Option<Treatment> {
        match self.augmentation {
            Change::Own(_) => None,
            Change::Recipe(recipe) => recipe.of(self.source.set()),
        }
    }

    /// The augmentation of images.
    pub fn augmentation(&self) -> Augmentation {
        match self.augmentation {
            Change::Own(augmentation) => augmentation,
            Change::Recipe(_) => self.treatment().unwrap_or_default().augmentation,
        }
    }

    /// How inputs are normalised, if not with the data set's own numbers.
    pub fn normalisation(&self) -> Option<Normalisation> {
        self.normalisation.clone().or_else(|| self.treatment()?.normalisation)
    }

    /// The source of the data, at the size that the recipe requires.
    pub fn source(&self) -> DataSource {
        let mut source = self.source.clone();
        if let DataSource::Named(set) = &mut source {
            set.size = set.size.or_else(|| self.treatment()?.size);
        }
        source
    }
}

/// Rejects a recipe that does not cover the data set.
fn unfit(data: &DataKeys) -> Result<(), KeyError> {
    let Change::Recipe(recipe) = data.augmentation else { return Ok(()) };
    if data.treatment().is_some() {
        return Ok(());
    }
    let known: Vec<&str> =
        SetName::ALL.into_iter().filter(|set| recipe.of(Some(*set)).is_some()).map(SetName::name).collect();
    let message = format!(
        "augmentation = \"{}\": the recipe is for {}, not for {}; use a table instead, such as augmentation = {{ \
         crop = 4, flip = true }}",
        recipe.name(),
        known.join(", "),
        data.source.name()
    );
    Err(KeyError::new("augmentation", message))
}
