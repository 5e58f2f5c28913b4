//! SHA-256 fingerprints as lower-case hex.

use sha2::{Digest, Sha256};

/// Collects bytes and gives their fingerprint.
pub(crate) struct Fingerprint(Sha256);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(crate) fn number(&mut self, value: usize) {
        self.0.update((value as u64).to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// 32-bit words in little-endian order, preceded by their count.
    pub(crate) fn words(&mut self, words: impl ExactSizeIterator<Item = u32>) {
        self.counted(words.map(u32::to_le_bytes));
    }

    /// The labels as little-endian 16-bit words, preceded by their count.
    pub(crate) fn labels(&mut self, labels: &[u16]) {
        self.counted(labels.iter().map(|label| label.to_le_bytes()));
    }

    fn counted<const N: usize>(&mut self, items: impl ExactSizeIterator<Item = [u8; N]>) {
        self.number(items.len());
        let mut buffer = Vec::with_capacity(8192);
        for item in items {
            buffer.extend_from_slice(&item);
            if buffer.len() == 8192 {
                self.0.update(&buffer);
                buffer.clear();
            }
        }
        self.0.update(&buffer);
    }

    pub(crate) fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_matches_sha_256() {
        let mut print = Fingerprint::new();
        print.bytes(b"abc");
        assert_eq!(print.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
