//! Event files that TensorBoard reads.
//!
//! A file is a sequence of records: length, its checksum, a protocol buffer, its checksum.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use prost::Message;

use crate::error::RecordError;
use crate::round::RoundRecord;
use crate::scalars::scalars;
use crate::summary::Status;

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
    #[prost(message, optional, tag = "8")]
    tensor: Option<TensorValue>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<TensorMetadata>,
}

/// A tensor of one float, which TensorBoard expects beside metadata.
#[derive(Clone, PartialEq, Message)]
struct TensorValue {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<TensorShape>,
    #[prost(float, repeated, tag = "5")]
    float_val: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorShape {
    #[prost(message, repeated, tag = "2")]
    dim: Vec<TensorLength>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorLength {
    #[prost(int64, tag = "1")]
    size: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TensorMetadata {
    #[prost(message, optional, tag = "1")]
    plugin_data: Option<PluginData>,
    #[prost(int32, tag = "4")]
    data_class: i32,
}

#[derive(Clone, PartialEq, Message)]
struct PluginData {
    #[prost(string, tag = "1")]
    plugin_name: String,
    #[prost(bytes = "vec", tag = "2")]
    content: Vec<u8>,
}

/// The part of `HParamsPluginData` in TensorBoard's `plugin_data.proto` that is written here.
#[derive(Clone, PartialEq, Message)]
struct HparamsData {
    #[prost(message, optional, tag = "3")]
    session_start_info: Option<HparamsStart>,
    #[prost(message, optional, tag = "4")]
    session_end_info: Option<HparamsEnd>,
}

#[derive(Clone, PartialEq, Message)]
struct HparamsStart {
    #[prost(btree_map = "string, message", tag = "1")]
    hparams: BTreeMap<String, ProtoValue>,
    #[prost(string, tag = "4")]
    group_name: String,
    #[prost(double, tag = "5")]
    start_time_secs: f64,
}

#[derive(Clone, PartialEq, Message)]
struct HparamsEnd {
    /// 1 for success, 2 for failure.
    #[prost(int32, tag = "1")]
    status: i32,
    #[prost(double, tag = "2")]
    end_time_secs: f64,
}

/// The part of `google.protobuf.Value` that is written here.
#[derive(Clone, PartialEq, Message)]
struct ProtoValue {
    #[prost(double, optional, tag = "2")]
    number: Option<f64>,
    #[prost(string, optional, tag = "3")]
    text: Option<String>,
    #[prost(bool, optional, tag = "4")]
    switch: Option<bool>,
}

impl ProtoValue {
    fn new(text: &str) -> Self {
        let (number, switch) = (text.parse().ok().filter(|number: &f64| number.is_finite()), text.parse().ok());
        let word = (number.is_none() && switch.is_none()).then(|| text.to_string());
        Self { number, text: word, switch }
    }
}

/// An open event file.
#[derive(Debug)]
pub struct EventsFile {
    file: File,
    path: PathBuf,
    classes: Vec<String>,
}

impl EventsFile {
    /// Creates the file, which must not exist. Its name must contain `tfevents` for TensorBoard to find it. Times are
    /// seconds since 1970; `classes` are the names of the classes.
    pub fn create(path: &Path, time: f64, classes: &[String]) -> Result<Self, RecordError> {
        let file = File::create_new(path).map_err(RecordError::io("create", path))?;
        let mut new = Self { file, path: path.to_path_buf(), classes: classes.to_vec() };
        let file_version = Some("brain.Event:2".to_string());
        new.record(&TensorEvent { wall_time: time, file_version, ..TensorEvent::default() })?;
        Ok(new)
    }

    /// Writes the numbers of a round.
    pub fn append(&mut self, round: &RoundRecord, time: f64) -> Result<(), RecordError> {
        let scalar = |(group, name, number): (&str, String, f64)| {
            let tag = if group.is_empty() { name } else { format!("{group}/{name}") };
            TensorScalar { tag, simple_value: Some(number as f32), ..TensorScalar::default() }
        };
        let value = scalars(round, &self.classes).into_iter().map(scalar).collect();
        let summary = Some(TensorSummary { value });
        self.record(&TensorEvent { wall_time: time, step: round.round as i64, file_version: None, summary })
    }

    /// Writes the settings of the run for the HPARAMS page. Runs that differ only in their seed are one group there.
    pub fn settings(&mut self, settings: &BTreeMap<String, String>, group: &str, time: f64) -> Result<(), RecordError> {
        let hparams = settings.iter().map(|(key, value)| (key.clone(), ProtoValue::new(value))).collect();
        let start = HparamsStart { hparams, group_name: group.to_string(), start_time_secs: time };
        let data = HparamsData { session_start_info: Some(start), ..HparamsData::default() };
        self.hparams("_hparams_/session_start_info", &data, time)
    }

    /// Writes how the run ended, for the HPARAMS page.
    pub fn end(&mut self, status: Status, time: f64) -> Result<(), RecordError> {
        let status = if status.is_complete() { 1 } else { 2 };
        let end = HparamsEnd { status, end_time_secs: time };
        let data = HparamsData { session_end_info: Some(end), ..HparamsData::default() };
        self.hparams("_hparams_/session_end_info", &data, time)
    }

    fn hparams(&mut self, tag: &str, data: &HparamsData, time: f64) -> Result<(), RecordError> {
        let plugin_data = PluginData { plugin_name: "hparams".to_string(), content: data.encode_to_vec() };
        let shape = Some(TensorShape { dim: vec![TensorLength { size: 1 }] });
        let value = TensorScalar {
            tag: tag.to_string(),
            simple_value: None,
            tensor: Some(TensorValue { dtype: 1, shape, float_val: vec![0.0] }),
            // A tensor.
            metadata: Some(TensorMetadata { plugin_data: Some(plugin_data), data_class: 2 }),
        };
        let summary = Some(TensorSummary { value: vec![value] });
        self.record(&TensorEvent { wall_time: time, summary, ..TensorEvent::default() })
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
        let mut file = EventsFile::create(&path, 1_700_000_000.0, &["T-shirt/top".to_string()]).unwrap();
        let start = std::fs::read(&path).unwrap();
        assert_eq!(start, FIRST);
        let class_accuracy = Some(vec![Some(0.5), Some(0.25)]);
        let round = RoundRecord { round: 300, accuracy: Some(0.5), class_accuracy, ..RoundRecord::default() };
        file.append(&round, 1.0).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(has(&bytes[start.len()..], b"\x0a\x08accuracy"), "{bytes:?}");
        // Classes by name; by number where there is none.
        assert!(has(&bytes, b"class-accuracy/T-shirt/top") && has(&bytes, b"class-accuracy/1"));
        assert!(EventsFile::create(&path, 0.0, &[]).is_err());
    }

    /// Written by `tensorboard.summary.writer.event_file_writer` at that time.
    const FIRST: [u8; 40] = [
        24, 0, 0, 0, 0, 0, 0, 0, 163, 127, 75, 34, 9, 0, 0, 0, 64, 252, 84, 217, 65, 26, 13, 98, 114, 97, 105, 110, 46,
        69, 118, 101, 110, 116, 58, 50, 236, 237, 143, 157,
    ];
}
