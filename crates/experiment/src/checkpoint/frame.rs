//! Files of checksummed frames: the form of everything in a checkpoint folder.
//!
//! A file is `FDCP`, the version (two bytes), the identity of the run (32 bytes) and frames: the length (eight bytes),
//! the CRC-32C (four bytes) and the bytes. Numbers are little endian. A file that grows may end inside a frame.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

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

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Missing,
            ErrorKind::UnexpectedEof => Self::Short,
            _ => Self::Content(format!("cannot read: {error}")),
        }
    }
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

/// The frames of a file, one by one: no more is in memory than the frame that was read last.
#[derive(Debug)]
pub(super) struct Frames<R> {
    file: R,
    /// Where the next frame starts, and where the file ends.
    at: u64,
    end: u64,
}

impl<R: Read + Seek> Frames<R> {
    /// Checks the head.
    pub(super) fn of(mut file: R, identity: &Identity) -> Result<Self, Damage> {
        let end = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let mut frames = Self { file, at: 0, end };
        if frames.array()? != MAGIC {
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
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Damage> {
        if self.at == self.end {
            return Ok(None);
        }
        let length = u64::from_le_bytes(self.array()?);
        let sum = u32::from_le_bytes(self.array()?);
        if length > self.end - self.at {
            return Err(Damage::Short);
        }
        // A damaged length could be that of the whole disk, so the checksum comes before the memory.
        let start = self.at;
        let mut part = [0; 1 << 16];
        let mut found = 0;
        while self.at < start + length {
            let part = &mut part[..(start + length - self.at).min(1 << 16) as usize];
            self.fill(part)?;
            found = crc32c::crc32c_append(found, part);
        }
        if found != sum {
            return Err(Damage::Checksum);
        }
        self.at = self.file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| Damage::Short)?];
        self.fill(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Where the next frame starts.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// A frame that must be there.
    pub(super) fn expect(&mut self) -> Result<Vec<u8>, Damage> {
        self.next()?.ok_or(Damage::Short)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Damage> {
        self.file.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

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
                let mut found = Frames::of(Cursor::new(bytes), &identity)?;
                let mut all = Vec::new();
                while let Some(frame) = found.next()? {
                    all.push(frame);
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
            let mut frames = Frames::of(Cursor::new(bytes), &identity)?;
            let mut found = Vec::new();
            while let Some(frame) = frames.next()? {
                found.push(frame);
            }
            Ok(found)
        };
        assert_eq!(all(&file), Ok(vec![b"one".to_vec(), Vec::new()]));
        assert_eq!(Frames::of(Cursor::new(&file), &[8; 32]).unwrap_err(), Damage::Foreign);
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
