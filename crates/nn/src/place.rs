//! Where a layer stands in its model.

use std::fmt;

/// The list that a layer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerList {
    /// The layers of the model.
    Layers,
    /// The body of a residual layer.
    Body,
    /// The shortcut of a residual layer.
    Shortcut,
}

impl LayerList {
    /// Its key in a model file.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::Body => "body",
            Self::Shortcut => "shortcut",
        }
    }
}

/// A step on the way from the model to a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PlaceStep {
    list: LayerList,
    index: usize,
    kind: Option<&'static str>,
}

/// Where a layer stands: "layer 4 (residual), body layer 2 (conv)".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerPlace(Vec<PlaceStep>);

impl LayerPlace {
    /// A layer of a list, counted from 0.
    #[must_use]
    pub fn at(list: LayerList, index: usize, kind: Option<&'static str>) -> Self {
        Self(vec![PlaceStep { list, index, kind }])
    }

    /// A layer inside this one.
    #[must_use]
    pub fn below(&self, list: LayerList, index: usize, kind: Option<&'static str>) -> Self {
        let mut steps = self.0.clone();
        steps.push(PlaceStep { list, index, kind });
        Self(steps)
    }

    /// Its dotted path in a model file, such as `layers.3.body.1`.
    #[must_use]
    pub fn key(&self) -> String {
        let steps = self.0.iter().map(|step| format!("{}.{}", step.list.key(), step.index));
        steps.collect::<Vec<_>>().join(".")
    }

    /// How many lists it is in.
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for LayerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, PlaceStep { list, index, kind }) in self.0.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let list = match list {
                LayerList::Layers => "",
                LayerList::Body => "body ",
                LayerList::Shortcut => "shortcut ",
            };
            write!(f, "{comma}{list}layer {}", index + 1)?;
            if let Some(kind) = kind {
                write!(f, " ({kind})")?;
            }
        }
        Ok(())
    }
}

/// A layer that does not fit the ones before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub place: LayerPlace,
    pub reason: String,
}

impl Misfit {
    /// The same layer, seen from outside the residual layer that it is in.
    pub(crate) fn within(self, list: LayerList, index: usize, kind: &'static str) -> Self {
        let mut place = LayerPlace::at(list, index, Some(kind));
        place.0.extend(self.place.0);
        Self { place, ..self }
    }
}

impl From<String> for Misfit {
    /// About the layer itself.
    fn from(reason: String) -> Self {
        Self { place: LayerPlace::default(), reason }
    }
}

impl From<&str> for Misfit {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.0.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.place, self.reason) }
    }
}

impl std::error::Error for Misfit {}
