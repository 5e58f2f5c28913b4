//! Event files that TensorBoard reads.
//!
//! A file is a sequence of records: length, its checksum, a protocol buffer, its checksum.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::csv::FIXED;
use crate::error::RecordError;
use crate::round::RoundRecord;

/// The part of `Event` in TensorFlow's `event.proto` that is written here.
#[derive(Clone, PartialEq, Message)]
struct TensorEvent {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<TensorSummary>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorSummary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<TensorScalar>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorScalar {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// An open event file.
#[derive(Debug)]
pub struct EventsFile {
    file: File,
    path: PathBuf,
}

impl EventsFile {
    /// Creates the file, which must not exist. Its name must contain `tfevents` for TensorBoard to find it. Times are
    /// seconds since 1970.
    pub fn create(path: &Path, time: f64) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(RecordError::io("create", path))?;
        let mut new = Self { file, path: path.to_path_buf() };
        let file_version = Some("brain.Event:2".to_string());
        new.record(&TensorEvent { wall_time: time, file_version, ..TensorEvent::default() })?;
        Ok(new)
    }

    /// Writes the numbers of a round.
    pub fn append(&mut self, round: &RoundRecord, time: f64) -> Result<(), RecordError> {
        let local = round.local.iter().flat_map(|local| &local.alignment);
        let classes = round.class_accuracy.iter().flatten().enumerate();
        let fixed = FIXED.iter().map(|(name, of)| (name.to_string(), of(round)));
        let numbers = fixed
            .chain(round.train_terms.iter().map(|(name, value)| (format!("train/{name}"), Some(*value))))
            .chain(round.alignment.iter().map(|(name, value)| (format!("alignment/{name}"), Some(*value))))
            .chain(local.map(|(name, value)| (format!("local-alignment/{name}"), Some(*value))))
            .chain(classes.map(|(class, accuracy)| (format!("class-accuracy/{class}"), *accuracy)));
        let scalar =
            |(tag, number): (String, Option<f64>)| Some(TensorScalar { tag, simple_value: Some(number? as f32) });
        let summary = Some(TensorSummary { value: numbers.filter_map(scalar).collect() });
        self.record(&TensorEvent { wall_time: time, step: round.round as i64, file_version: None, summary })
    }

    fn record(&mut self, event: &TensorEvent) -> Result<(), RecordError> {
        let event = event.encode_to_vec();
        let length = (event.len() as u64).to_le_bytes();
        let out = [&length[..], &masked(&length), &event, &masked(&event)].concat();
        self.file.write_all(&out).and_then(|()| self.file.flush()).map_err(RecordError::io("write", &self.path))
    }
}

/// The checksum used by these files: CRC-32C, rotated and shifted.
fn masked(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
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
