//! Files of checksummed frames: the form of everything in a checkpoint folder.
//!
//! A file is `FDCP`, the version (two bytes), the identity of the run (32 bytes) and frames: the length (eight bytes),
//! the CRC-32C (four bytes) and the bytes. Numbers are little endian. A file that grows may end inside a frame.

use std::io::{self, Write};

const MAGIC: [u8; 4] = *b"FDCP";
const VERSION: u16 = 1;

/// What tells the files of a run from those of another.
pub(crate) type Identity = [u8; 32];

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("it is not a file of a checkpoint")]
    Magic,
    #[error("it has version {found}; this program reads version {VERSION}")]
    Version { found: u16 },
    #[error("it belongs to another run, or the configuration or the data have changed")]
    Foreign,
    #[error("it is missing")]
    Missing,
    #[error("it ends too early")]
    Short,
    #[error("its checksum is wrong")]
    Checksum,
    #[error("{0}")]
    Content(String),
}

/// Starts a file.
pub(super) fn write_head(out: &mut dyn Write, identity: &Identity) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(identity)
}

pub(super) fn write_frame(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(&crc32c::crc32c(bytes).to_le_bytes())?;
    out.write_all(bytes)
}

/// The frames of a file.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    left: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Checks the head.
    pub(super) fn of(bytes: &'a [u8], identity: &Identity) -> Result<Self, Damage> {
        let mut frames = Self { left: bytes };
        if frames.take(MAGIC.len())? != MAGIC {
            return Err(Damage::Magic);
        }
        let version = u16::from_le_bytes(frames.array()?);
        if version != VERSION {
            return Err(Damage::Version { found: version });
        }
        if frames.array::<32>()? != *identity {
            return Err(Damage::Foreign);
        }
        Ok(frames)
    }

    /// The next frame; nothing at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<&'a [u8]>, Damage> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let length = u64::from_le_bytes(self.array()?);
        let sum = u32::from_le_bytes(self.array()?);
        let bytes = self.take(usize::try_from(length).map_err(|_| Damage::Short)?)?;
        if crc32c::crc32c(bytes) != sum {
            return Err(Damage::Checksum);
        }
        Ok(Some(bytes))
    }

    /// Bytes that have not been read.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    /// A frame that must be there.
    pub(super) fn expect(&mut self) -> Result<&'a [u8], Damage> {
        self.next()?.ok_or(Damage::Short)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Damage> {
        let (taken, left) = self.left.split_at_checked(n).ok_or(Damage::Short)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        self.take(N)?.try_into().map_err(|_| Damage::Short)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_frames_come_back_and_one_wrong_bit_does_not(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..6),
            identity: Identity,
            wrong in any::<prop::sample::Index>(),
            bit in 0..8,
        ) {
            let mut file = Vec::new();
            write_head(&mut file, &identity).unwrap();
            frames.iter().for_each(|frame| write_frame(&mut file, frame).unwrap());
            let read = |bytes: &[u8]| -> Result<Vec<Vec<u8>>, Damage> {
                let mut found = Frames::of(bytes, &identity)?;
                let mut all = Vec::new();
                while let Some(frame) = found.next()? {
                    all.push(frame.to_vec());
                }
                Ok(all)
            };
            prop_assert_eq!(read(&file), Ok(frames));
            let wrong = wrong.index(file.len());
            file[wrong] ^= 1u8 << bit;
            prop_assert!(read(&file).is_err());
        }
    }

    #[test]
    fn frames_come_back_and_damage_is_noticed() {
        let identity = [7; 32];
        let mut file = Vec::new();
        write_head(&mut file, &identity).unwrap();
        write_frame(&mut file, b"one").unwrap();
        write_frame(&mut file, b"").unwrap();
        let all = |bytes: &[u8]| {
            let mut frames = Frames::of(bytes, &identity)?;
            let mut found = Vec::new();
            while let Some(frame) = frames.next()? {
                found.push(frame.to_vec());
            }
            Ok(found)
        };
        assert_eq!(all(&file), Ok(vec![b"one".to_vec(), Vec::new()]));
        assert_eq!(Frames::of(&file, &[8; 32]).unwrap_err(), Damage::Foreign);
        for end in 0..file.len() {
            let whole = [38, 38 + 12 + 3].contains(&end);
            assert_eq!(all(&file[..end]).is_ok(), whole, "{end} of {}", file.len());
        }
        for at in 0..file.len() {
            let mut wrong = file.clone();
            wrong[at] ^= 0x10;
            assert!(all(&wrong).is_err(), "byte {at}");
        }
        let mut long = file.clone();
        long.extend(u64::MAX.to_le_bytes());
        long.extend([0; 4]);
        assert_eq!(all(&long), Err(Damage::Short));
    }
}
