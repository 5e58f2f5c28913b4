//! Texts as token IDs.

/// The token IDs of texts, one text after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// The tokens of all texts.
    pub ids: Vec<u32>,
    /// Where each text starts, and the end of the last one.
    pub starts: Vec<u32>,
}

impl Default for TokenIds {
    fn default() -> Self {
        Self { ids: Vec::new(), starts: vec![0] }
    }
}

impl TokenIds {
    /// Adds one text.
    pub(crate) fn push(&mut self, ids: impl Iterator<Item = u32>) {
        self.ids.extend(ids);
        self.starts.push(self.ids.len() as u32);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
