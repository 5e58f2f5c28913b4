//! Event files that TensorBoard reads.
//!
//! A file is a sequence of records: length, its checksum, a protocol buffer, its checksum. The buffers are `Event`
//! messages with a wall time (field 1), a step (2), and either the file version (3) or a summary (5) of tagged numbers.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::csv::FIXED;
use crate::error::Error;
use crate::round::RoundRecord;

/// An open event file.
#[derive(Debug)]
pub struct EventsFile {
    file: File,
    path: PathBuf,
}

impl EventsFile {
    /// Makes the file, which must not exist. Its name must have `tfevents` in it for TensorBoard to find it. Times are
    /// seconds since 1970.
    pub fn create(path: &Path, time: f64) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(Error::io("create", path))?;
        let mut new = Self { file, path: path.to_path_buf() };
        let mut event = Vec::new();
        double(&mut event, 1, time);
        bytes(&mut event, 3, b"brain.Event:2");
        new.record(&event)?;
        Ok(new)
    }

    /// Writes the numbers of a round.
    pub fn append(&mut self, round: &RoundRecord, time: f64) -> Result<(), Error> {
        let mut summary = Vec::new();
        let mut put = |tag: &str, value: Option<f64>| {
            let Some(value) = value else { return };
            let mut item = Vec::new();
            bytes(&mut item, 1, tag.as_bytes());
            key(&mut item, 2, 5);
            item.extend_from_slice(&(value as f32).to_le_bytes());
            bytes(&mut summary, 1, &item);
        };
        for (name, of) in FIXED {
            put(name, of(round));
        }
        for (name, value) in &round.train_terms {
            put(&format!("train/{name}"), Some(*value));
        }
        for (name, value) in &round.alignment {
            put(&format!("alignment/{name}"), Some(*value));
        }
        for (name, value) in round.local.iter().flat_map(|local| &local.alignment) {
            put(&format!("local-alignment/{name}"), Some(*value));
        }
        for (class, accuracy) in round.class_accuracy.iter().flatten().enumerate() {
            put(&format!("class-accuracy/{class}"), *accuracy);
        }
        let mut event = Vec::new();
        double(&mut event, 1, time);
        key(&mut event, 2, 0);
        varint(&mut event, round.round);
        bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, event: &[u8]) -> Result<(), Error> {
        let length = (event.len() as u64).to_le_bytes();
        let mut out = Vec::with_capacity(event.len() + 16);
        out.extend_from_slice(&length);
        out.extend_from_slice(&masked(&length).to_le_bytes());
        out.extend_from_slice(event);
        out.extend_from_slice(&masked(event).to_le_bytes());
        self.file.write_all(&out).and_then(|()| self.file.flush()).map_err(Error::io("write", &self.path))
    }
}

/// The checksum as these files have it: CRC-32C, rotated and shifted.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn key(out: &mut Vec<u8>, field: u64, kind: u64) {
    varint(out, field << 3 | kind);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_record_is_the_one_that_tensorflow_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.out.tfevents.1");
        let mut file = EventsFile::create(&path, 1_700_000_000.0).unwrap();
        let start = std::fs::read(&path).unwrap();
        assert_eq!(start, FIRST);
        file.append(&RoundRecord { round: 300, accuracy: Some(0.5), ..RoundRecord::default() }, 1.0).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[start.len()..].windows(10).any(|part| part == b"\x0a\x08accuracy"), "{bytes:?}");
        assert!(EventsFile::create(&path, 0.0).is_err());
    }

    /// Written by `tensorboard.summary.writer.event_file_writer` at that time.
    const FIRST: [u8; 40] = [
        24, 0, 0, 0, 0, 0, 0, 0, 163, 127, 75, 34, 9, 0, 0, 0, 64, 252, 84, 217, 65, 26, 13, 98, 114, 97, 105, 110, 46,
        69, 118, 101, 110, 116, 58, 50, 236, 237, 143, 157,
    ];
}
