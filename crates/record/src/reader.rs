//! Reading a run back.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::header::{FORMAT, Header, VERSION};
use crate::holdings::Holdings;
use crate::round::RoundRecord;
use crate::summary::Summary;

/// What `rounds.jsonl` holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    /// What the run was.
    pub header: Header,
    /// Its rounds, in order.
    pub rounds: Vec<RoundRecord>,
    /// Whether the last line was cut and left out: the run was stopped while it wrote.
    pub cut: bool,
}

/// Reads a `rounds.jsonl`. A last line without its end is left out; any other line that cannot be read is an error.
pub fn read_rounds(path: &Path) -> Result<Rounds, Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let complete = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut lines = bytes[..complete].split_inclusive(|&byte| byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(Error::NoHeader { path: path.to_path_buf() });
    };
    let header = versioned(first, path)?;
    let mut rounds = Vec::new();
    for (number, line) in lines {
        let bad = |reason: String| Error::Line { line: number + 1, reason, path: path.to_path_buf() };
        let round: RoundRecord = serde_json::from_slice(line).map_err(|e| bad(format!("not a round record: {e}")))?;
        let expected = rounds.last().map_or(1, |last: &RoundRecord| last.round + 1);
        if round.round != expected {
            return Err(bad(format!("expected round {expected}, found round {}", round.round)));
        }
        rounds.push(round);
    }
    Ok(Rounds { header, rounds, cut: complete < bytes.len() })
}

/// Reads a `summary.json`.
pub fn read_summary(path: &Path) -> Result<Summary, Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    versioned(&bytes, path)
}

/// Reads a `holdings.json`.
pub fn read_holdings(path: &Path) -> Result<Holdings, Error> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    versioned(&bytes, path)
}

/// Checks format and version before anything else, so that a newer file is named as such.
fn versioned<T: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T, Error> {
    let path = path.to_path_buf();
    let bad = |e: serde_json::Error| Error::Line { line: e.line().max(1), reason: e.to_string(), path: path.clone() };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(bad)?;
    let found = value.get("format").and_then(serde_json::Value::as_str).unwrap_or("");
    if found != FORMAT {
        return Err(Error::Format { expected: FORMAT, found: found.to_string(), path });
    }
    let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if found != u64::from(VERSION) {
        return Err(Error::Version { expected: VERSION, found, path });
    }
    serde_json::from_value(value).map_err(|e| Error::Line { line: 1, reason: e.to_string(), path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RoundsFile, RunFolder};

    fn round(round: u64) -> RoundRecord {
        RoundRecord {
            round,
            accuracy: Some(0.1 + 0.2),
            class_accuracy: Some(vec![Some(1.0 / 3.0), None]),
            train_terms: [("ce".to_string(), 0.7)].into(),
            clients: vec![3, 9],
            ..RoundRecord::default()
        }
    }

    fn written(rounds: u64) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let mut file = RoundsFile::create(&path, &Header { seed: 5, ..Header::default() }).unwrap();
        (1..=rounds).for_each(|number| file.append(&round(number)).unwrap());
        file.finish().unwrap();
        (dir, path)
    }

    #[test]
    fn what_was_written_comes_back() {
        let (_dir, path) = written(3);
        let read = read_rounds(&path).unwrap();
        assert_eq!(read.header.seed, 5);
        assert_eq!(read.rounds, [round(1), round(2), round(3)]);
        assert!(!read.cut);
        assert!(RoundsFile::create(&path, &Header::default()).is_err());
    }

    #[test]
    fn every_cut_of_the_last_line_is_tolerated() {
        let (_dir, path) = written(2);
        let bytes = fs::read(&path).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
        for end in last + 1..bytes.len() {
            fs::write(&path, &bytes[..end]).unwrap();
            let read = read_rounds(&path).unwrap();
            assert_eq!((read.rounds.len(), read.cut), (1, true));
        }
        fs::write(&path, &bytes[..10]).unwrap();
        assert!(matches!(read_rounds(&path), Err(Error::NoHeader { .. })));
        fs::write(&path, b"").unwrap();
        assert!(matches!(read_rounds(&path), Err(Error::NoHeader { .. })));
    }

    #[test]
    fn garbage_is_named_by_its_line() {
        let (_dir, path) = written(3);
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[2] = "\u{1}garbage";
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let message = read_rounds(&path).unwrap_err().to_string();
        assert!(message.contains("rounds.jsonl: line 3: not a round record"), "{message}");
        let skipped = [lines[0], lines[1], lines[3], ""].join("\n");
        fs::write(&path, skipped).unwrap();
        let message = read_rounds(&path).unwrap_err().to_string();
        assert!(message.ends_with("line 3: expected round 2, found round 3"), "{message}");
        fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
        assert!(matches!(read_rounds(&path), Err(Error::Line { line: 1, .. })));
    }

    #[test]
    fn other_formats_and_versions_are_refused() {
        let (_dir, path) = written(0);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"version\":1", "\"version\":7")).unwrap();
        let message = read_rounds(&path).unwrap_err().to_string();
        assert!(message.ends_with("version 7 of the format is not known; this program reads version 1"), "{message}");
        fs::write(&path, text.replace(FORMAT, "other")).unwrap();
        assert!(matches!(read_rounds(&path), Err(Error::Format { .. })));
    }

    #[test]
    fn summaries_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&dir.path().join("run")).unwrap();
        let mut summary = Summary::default();
        summary.add(&round(1));
        folder.write_summary(&summary).unwrap();
        assert_eq!(read_summary(&folder.path().join("summary.json")).unwrap(), summary);
    }
}
