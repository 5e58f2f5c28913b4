//! Reads a run back, even if incomplete or damaged.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use fedelity_files::{LISTING, RECORD, TEXT};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clients::ClientsReport;
use crate::csv::FIXED;
use crate::error::RecordError;
use crate::header::{FORMAT, Header, VERSION};
use crate::holdings::Holdings;
use crate::round::{RoundRecord, Seconds};
use crate::summary::Summary;

/// The readable part of a `rounds.jsonl`, and its problems.
#[derive(Clone, Debug, PartialEq)]
pub struct Salvage {
    pub header: Header,
    /// That of the file is damaged, and this is another.
    pub headless: bool,
    /// The readable rounds, in ascending order; some may be missing.
    pub rounds: Vec<RoundRecord>,
    /// What was left out, and where.
    pub problems: Vec<String>,
}

/// Reads as much as possible. Only a file without a readable header is an error.
pub fn salvage_rounds(path: &Path) -> Result<Salvage, RecordError> {
    salvage(path, None).map(|(salvage, _)| salvage)
}

/// As [`salvage_rounds`], of a run with this header, which counts if that of the file is damaged.
pub fn salvage_rounds_of(path: &Path, header: &Header) -> Result<Salvage, RecordError> {
    salvage(path, Some(header)).map(|(salvage, _)| salvage)
}

/// The number of the last round of a `rounds.jsonl`, from its end alone. Nothing if its last line is not a whole round.
pub fn last_round(path: &Path) -> Option<u64> {
    let mut file = fedelity_files::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let mut size = 1 << 14;
    loop {
        let start = length.saturating_sub(size);
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut end = Vec::new();
        file.by_ref().take(length - start).read_to_end(&mut end).ok()?;
        let line = end.strip_suffix(b"\n")?;
        match line.iter().rposition(|&byte| byte == b'\n') {
            Some(before) => {
                let record: RoundRecord = serde_json::from_slice(&line[before + 1..]).ok()?;
                return Some(record.round);
            }
            // The only line is the header.
            None if start == 0 => return None,
            None => size *= 4,
        }
    }
}

/// The longest line that is read: one with the accuracy of a million clients is shorter.
const LONGEST_LINE: u64 = TEXT;

/// The lines of a file, one by one.
struct Lines {
    file: BufReader<File>,
    line: Vec<u8>,
    number: usize,
    /// Where the line starts, and where the next one does.
    place: Range<u64>,
}

/// What comes next in a file of lines.
enum Next {
    /// A line with its end.
    Line,
    /// A line that is longer than any can be.
    Long,
    /// A line without an end.
    Part,
    End,
}

impl Lines {
    fn next(&mut self) -> io::Result<Next> {
        self.line.clear();
        let read = self.file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.line)? as u64;
        self.number += 1;
        self.place = self.place.end..self.place.end + read;
        Ok(match self.line.last() {
            Some(b'\n') => Next::Line,
            Some(_) if read == LONGEST_LINE => Next::Long,
            Some(_) => Next::Part,
            None => Next::End,
        })
    }
}

/// What can be read of a file, and the place of each round's line. Without a header that can be read, `otherwise` counts.
pub(crate) fn salvage(path: &Path, otherwise: Option<&Header>) -> Result<(Salvage, Vec<Range<u64>>), RecordError> {
    let failed = || RecordError::io("read", path);
    let file = fedelity_files::open(path).map_err(failed())?;
    if file.metadata().map_err(failed())?.len() > RECORD {
        return Err(RecordError::Long { most: RECORD >> 30, path: path.to_path_buf() });
    }
    let mut lines = Lines { file: BufReader::new(file), line: Vec::new(), number: 0, place: 0..0 };
    let mut problems = Vec::new();
    let read = match lines.next().map_err(failed())? {
        Next::Line => formatted(&lines.line, path).and_then(|(value, version)| Ok((parsed(value, path)?, version))),
        Next::Long => Err(RecordError::Line { line: 1, reason: "too long".to_string(), path: path.to_path_buf() }),
        Next::Part | Next::End => return Err(RecordError::NoHeader { path: path.to_path_buf() }),
    };
    let mut headless = false;
    let header: Header = match (read, otherwise) {
        (Ok((header, version)), _) => {
            // From another version, known fields are read.
            if version != u64::from(VERSION) {
                problems.push(format!("unknown format version {version}; it is read as version {VERSION}"));
            }
            header
        }
        (Err(RecordError::Line { .. }), Some(header)) => {
            headless = true;
            problems.push("line 1, which describes the run, is damaged, and is written again".to_string());
            header.clone()
        }
        (Err(RecordError::Line { reason, path, .. }), None) => return Err(RecordError::Header { reason, path }),
        (Err(error), _) => return Err(error),
    };
    let (mut rounds, mut places): (Vec<RoundRecord>, Vec<Range<u64>>) = Default::default();
    let mut garbage: Vec<(usize, String)> = Vec::new();
    let mut incomplete = false;
    loop {
        match lines.next().map_err(failed())? {
            Next::Line => {}
            Next::Long => {
                garbage.push((lines.number, "it is too long; nothing after it is read".to_string()));
                break;
            }
            Next::Part => {
                incomplete = true;
                break;
            }
            Next::End => break,
        }
        match serde_json::from_slice::<RoundRecord>(&lines.line) {
            Err(error) => garbage.push((lines.number, error.to_string().replace(" at line 1 column", " at column"))),
            Ok(round) if rounds.last().is_some_and(|last| round.round <= last.round) => {
                garbage.push((lines.number, format!("round {} occurs again", round.round)));
            }
            Ok(round) => match impossible(&round, &header) {
                Some(reason) => garbage.push((lines.number, reason)),
                None => {
                    rounds.push(round);
                    places.push(lines.place.clone());
                }
            },
        }
    }
    if let Some((line, reason)) = garbage.first() {
        let more = if garbage.len() > 1 { format!(" and {} more lines", garbage.len() - 1) } else { String::new() };
        problems.push(format!("line {line}{more} left out: {reason}"));
    }
    if incomplete {
        problems.push("the last line is incomplete and left out: the run was stopped while writing it".to_string());
    }
    let last = rounds.last().map_or(0, |last| last.round);
    let first = (1..).zip(&rounds).find(|(n, round)| *n < round.round).map(|(n, _): (u64, _)| n);
    match (last - rounds.len() as u64, first) {
        (1, Some(first)) => problems.push(format!("round {first} is missing")),
        (n, Some(first)) => problems.push(format!("{n} rounds are missing, the first is {first}")),
        (_, None) => {}
    }
    let early = rounds.last().is_some_and(|round| round.early_stop.is_some());
    if last < header.rounds && !early {
        problems.push(match last {
            0 => format!("none of its {} rounds was recorded", header.rounds),
            _ => format!("it stopped after round {last} of {}", header.rounds),
        });
    }
    Ok((Salvage { header, headless, rounds, problems }, places))
}

/// Training cannot produce a loss beyond this.
const GREATEST_LOSS: f64 = 1e40;
/// Nor any other number beyond this, which leaves room for squares and sums.
const GREATEST: f64 = 1e60;
/// Samples of a data set. Sums over all clients and classes are far below the largest number.
const MOST_SAMPLES: u64 = u32::MAX as u64;
/// A round cannot take longer than this, in seconds: 30,000 years.
const LONGEST: f64 = 1e12;

/// Why a round cannot belong to this run, if it cannot.
fn impossible(round: &RoundRecord, header: &Header) -> Option<String> {
    let share = |x: &f64| (0.0..=1.0).contains(x);
    if round.round == 0 || header.rounds > 0 && round.round > header.rounds {
        return Some(format!("round {} of {}", round.round, header.rounds));
    }
    if let Some(accuracy) =
        round.accuracy.iter().chain(round.class_accuracy.iter().flatten().flatten()).find(|x| !share(x))
    {
        return Some(format!("accuracy {accuracy:e}: expected 0 to 1"));
    }
    if let Some(loss) = round.loss.iter().chain(&round.train_loss).find(|loss| loss.abs() > GREATEST_LOSS) {
        return Some(format!("loss {loss:e}"));
    }
    let Seconds { train, aggregate, evaluate, observe } = round.seconds;
    if let Some(seconds) = [train, aggregate, evaluate, observe].iter().find(|time| !(0.0..=LONGEST).contains(*time)) {
        return Some(format!("{seconds:e} seconds"));
    }
    let fixed = FIXED.iter().filter_map(|(name, of)| Some((*name, of(round)?)));
    let local = round.local.iter().flat_map(|local| &local.alignment);
    let named = round.train_terms.iter().chain(&round.alignment).chain(local).map(|(name, value)| (&**name, *value));
    let spread = round.drift.iter().flat_map(|drift| [("drift", drift.sd), ("drift", drift.min), ("drift", drift.max)]);
    if let Some((name, number)) = fixed.chain(named).chain(spread).find(|(_, number)| number.abs() > GREATEST) {
        return Some(format!("{name} {number:e}"));
    }
    if let Some(count) = round.confusion.iter().flatten().flatten().find(|count| **count > MOST_SAMPLES) {
        return Some(format!("confusion {count}: no data set has more samples than {MOST_SAMPLES}"));
    }
    let (found, classes) = (round.class_accuracy.as_ref().map_or(0, Vec::len), header.classes.len());
    let fits = found == 0 || classes == 0 || found == classes;
    (!fits).then(|| format!("accuracies of {found} classes, but there are {classes}"))
}

/// Reads a `summary.json`.
pub fn read_summary(path: &Path) -> Result<Summary, RecordError> {
    read_versioned(path, TEXT)
}

/// Reads a `holdings.json`.
pub fn read_holdings(path: &Path) -> Result<Holdings, RecordError> {
    let read: Holdings = read_versioned(path, LISTING)?;
    match read.counts.iter().flatten().find(|count| **count > MOST_SAMPLES) {
        Some(&found) => {
            let (what, most, path) = ("samples", MOST_SAMPLES, path.to_path_buf());
            Err(RecordError::Count { what, found, most, path })
        }
        None => Ok(read),
    }
}

/// Reads a `clients.json`.
pub fn read_clients(path: &Path) -> Result<ClientsReport, RecordError> {
    read_versioned(path, LISTING)
}

/// Checks format and version first, so that a newer file is reported as such.
fn read_versioned<T: DeserializeOwned>(path: &Path, most: u64) -> Result<T, RecordError> {
    let bytes = fedelity_files::read(path, most).map_err(RecordError::io("read", path))?;
    let (value, found) = formatted(&bytes, path)?;
    if found != u64::from(VERSION) {
        return Err(RecordError::Version { expected: VERSION, found, path: path.to_path_buf() });
    }
    parsed(value, path)
}

/// A JSON value of this format, and its version.
fn formatted(bytes: &[u8], path: &Path) -> Result<(Value, u64), RecordError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| RecordError::json(&error, path))?;
    let found = value.get("format").and_then(Value::as_str).unwrap_or("");
    if found != FORMAT {
        return Err(RecordError::Format { expected: FORMAT, found: found.to_string(), path: path.to_path_buf() });
    }
    let version = value.get("version").and_then(Value::as_u64).unwrap_or(0);
    Ok((value, version))
}

fn parsed<T: DeserializeOwned>(value: Value, path: &Path) -> Result<T, RecordError> {
    serde_json::from_value(value).map_err(|error| RecordError::json(&error, path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

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
        let mut file = RoundsFile::create(&path, &Header { seed: 5, rounds, ..Header::default() }).unwrap();
        (1..=rounds).for_each(|number| file.append(&round(number)).unwrap());
        file.finish().unwrap();
        (dir, path)
    }

    #[test]
    fn what_was_written_comes_back() {
        let (_dir, path) = written(3);
        let read = salvage_rounds(&path).unwrap();
        assert_eq!(read.header, Header { seed: 5, rounds: 3, ..Header::default() });
        assert_eq!(read.rounds, [round(1), round(2), round(3)]);
        assert_eq!(read.problems, Vec::<String>::new());
        assert!(RoundsFile::create(&path, &Header::default()).is_err());
    }

    #[test]
    fn a_damaged_header_is_named_and_replaced_by_the_runs() {
        let (_dir, path) = written(3);
        let text = fs::read_to_string(&path).unwrap();
        let (header, rounds) = text.split_once('\n').unwrap();
        for wrong in [
            "\0".repeat(header.len()),
            header.replace("\"seed\":5", "\"seed\":-5"),
            header[..20].to_string(),
            String::new(),
        ] {
            fs::write(&path, format!("{wrong}\n{rounds}")).unwrap();
            let message = salvage_rounds(&path).unwrap_err().to_string();
            assert!(message.contains("its first line, which describes the run, is damaged ("), "{message}");
            let header = Header { seed: 5, rounds: 3, ..Header::default() };
            let read = salvage_rounds_of(&path, &header).unwrap();
            assert_eq!((&read.header, &read.rounds[..]), (&header, &[round(1), round(2), round(3)][..]));
            assert!(read.problems[0].starts_with("line 1, which describes the run, is damaged"), "{:?}", read.problems);
            RoundsFile::resume(&path, &header, 2).unwrap();
            assert_eq!(salvage_rounds(&path).unwrap().rounds, [round(1), round(2)]);
        }
        fs::write(&path, format!("{{\"format\":\"other\"}}\n{rounds}")).unwrap();
        assert!(matches!(salvage_rounds_of(&path, &Header::default()), Err(RecordError::Format { .. })));
    }

    /// A hole takes no room on disk, and reading it would take that much memory.
    #[test]
    fn a_line_without_an_end_is_not_read_to_its_end() {
        let (_dir, path) = written(2);
        File::options().write(true).open(&path).unwrap().set_len(RECORD).unwrap();
        let read = salvage_rounds(&path).unwrap();
        assert_eq!(read.rounds, [round(1), round(2)]);
        assert_eq!(read.problems, ["line 4 left out: it is too long; nothing after it is read"]);
        File::options().write(true).open(&path).unwrap().set_len(RECORD + 1).unwrap();
        assert!(salvage_rounds(&path).unwrap_err().to_string().ends_with("it has more than 4 GB"));
        fs::write(&path, "").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(RECORD).unwrap();
        assert!(salvage_rounds(&path).unwrap_err().to_string().contains("is damaged (too long)"));
    }

    #[test]
    fn every_cut_of_the_last_line_is_tolerated() {
        let (_dir, path) = written(2);
        let bytes = fs::read(&path).unwrap();
        let last = bytes[..bytes.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
        for end in last + 1..bytes.len() {
            fs::write(&path, &bytes[..end]).unwrap();
            let read = salvage_rounds(&path).unwrap();
            assert_eq!(read.rounds.len(), 1);
            assert!(read.problems[0].contains("last line is incomplete"), "{:?}", read.problems);
        }
        for content in [&bytes[..10], b""] {
            fs::write(&path, content).unwrap();
            assert!(matches!(salvage_rounds(&path), Err(RecordError::NoHeader { .. })));
        }
        fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
        assert!(matches!(salvage_rounds(&path), Err(RecordError::Header { .. })));
    }

    #[test]
    fn summaries_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&dir.path().join("run")).unwrap();
        let mut summary = Summary::default();
        summary.add(&round(1));
        folder.write_summary(&summary).unwrap();
        let path = folder.path().join("summary.json");
        assert_eq!(read_summary(&path).unwrap(), summary);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
        let message = read_summary(&path).unwrap_err().to_string();
        assert!(message.ends_with("unknown format version 7; this program reads version 1"), "{message}");
        fs::write(&path, text.replace(FORMAT, "other")).unwrap();
        assert!(matches!(read_summary(&path), Err(RecordError::Format { .. })));
    }

    #[test]
    fn more_samples_than_a_data_set_has_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&dir.path().join("run")).unwrap();
        let path = folder.file("holdings.json");
        for (count, fits) in [(u64::from(u32::MAX), true), (u64::MAX, false)] {
            folder.write_holdings(&Holdings::new(vec![vec![1], vec![count, 2]])).unwrap();
            assert_eq!(read_holdings(&path).is_ok(), fits);
            let confusion = Some(vec![vec![0, count]]);
            let wrong = impossible(&RoundRecord { confusion, ..round(1) }, &Header::default());
            assert_eq!(wrong.is_none(), fits, "{wrong:?}");
        }
        let message = read_holdings(&path).unwrap_err().to_string();
        assert!(message.ends_with("samples 18446744073709551615: no data set has more than 4294967295"), "{message}");
    }

    #[test]
    fn the_readable_part_is_read_and_the_rest_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rounds.jsonl");
        let mut file = RoundsFile::create(&path, &Header { rounds: 9, ..Header::default() }).unwrap();
        (1..=5).for_each(|round| file.append(&RoundRecord { round, ..RoundRecord::default() }).unwrap());
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[3] = "\u{0}garbage{";
        lines.push("{\"round\":6,\"by");
        fs::write(&path, lines.join("\n")).unwrap();
        let read = salvage_rounds(&path).unwrap();
        assert_eq!(read.rounds.iter().map(|round| round.round).collect::<Vec<_>>(), [1, 2, 4, 5]);
        let said = read.problems.join("; ");
        for text in ["line 4 left out", "last line is incomplete", "round 3 is missing", "stopped after round 5 of 9"] {
            assert!(said.contains(text), "{text:?} in {said}");
        }
        let record = |round, accuracy, loss| RoundRecord { round, accuracy, loss, ..RoundRecord::default() };
        for (wrong, reason) in [
            (record(4, Some(1e300), None), "line 5 left out: accuracy 1e300: expected 0 to 1"),
            (record(4, None, Some(1e300)), "line 5 left out: loss 1e300"),
            (record(4_000_000_000_000, None, None), "line 5 left out: round 4000000000000 of 9"),
            (
                RoundRecord { seconds: Seconds { train: 1e306, ..Seconds::default() }, ..record(4, None, None) },
                "line 5 left out: 1e306 seconds",
            ),
            (
                RoundRecord { seconds: Seconds { observe: -1.0, ..Seconds::default() }, ..record(4, None, None) },
                "line 5 left out: -1e0 seconds",
            ),
            (
                RoundRecord { gradient_diversity: Some(-1e306), ..record(4, None, None) },
                "line 5 left out: gradient-diversity -1e306",
            ),
            (
                RoundRecord { train_terms: [("kl".to_string(), 1e306)].into(), ..record(4, None, None) },
                "line 5 left out: kl 1e306",
            ),
        ] {
            let wrong = serde_json::to_string(&wrong).unwrap();
            let mut lines: Vec<&str> = text.lines().collect();
            lines[4] = &wrong;
            fs::write(&path, lines.join("\n") + "\n").unwrap();
            let said = salvage_rounds(&path).unwrap().problems.join("; ");
            assert!(said.contains(reason), "{reason:?} in {said}");
        }
        fs::write(&path, text.replace("\"version\":1", "\"version\":7")).unwrap();
        let read = salvage_rounds(&path).unwrap();
        assert!(read.rounds.len() == 5 && read.problems[0].contains("version 7"), "{:?}", read.problems);
        fs::write(&path, "{}\n").unwrap();
        assert!(matches!(salvage_rounds(&path), Err(RecordError::Format { .. })));
        fs::write(&path, "").unwrap();
        assert!(matches!(salvage_rounds(&path), Err(RecordError::NoHeader { .. })));
    }

    fn share() -> impl Strategy<Value = Option<f64>> {
        prop::option::of(0.0f64..=1.0)
    }

    prop_compose! {
        /// What training can record, with any numbers.
        fn recorded()(
            accuracy in share(),
            classes in prop::collection::vec(share(), 3),
            loss in prop::option::of(-1e39f64..1e39),
            terms in prop::collection::btree_map(".{0,8}", any::<f32>().prop_filter("finite", |x| x.is_finite()), 0..4),
            spread in prop::option::of((0f64..1e30, 0f64..1e30, 0f64..1e30, 0f64..1e30)),
            bytes in (any::<u64>(), any::<u64>(), any::<u64>()),
            train in 0f64..1e9,
            clients in prop::collection::vec(any::<u64>(), 0..5),
        ) -> RoundRecord {
            RoundRecord {
                accuracy,
                class_accuracy: accuracy.map(|_| classes),
                loss,
                train_terms: terms.into_iter().map(|(name, value)| (name, f64::from(value))).collect(),
                drift: spread.map(|(mean, sd, min, max)| crate::Spread { mean, sd, min, max }),
                bytes_down: bytes.0,
                bytes_up: bytes.1,
                trained_samples: bytes.2,
                seconds: Seconds { train, ..Seconds::default() },
                clients,
                ..RoundRecord::default()
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_record_comes_back(rounds in prop::collection::vec(recorded(), 1..6), name in ".{0,12}", seed: u64) {
            let dir = tempfile::tempdir().unwrap();
            let folder = RunFolder::create(&dir.path().join("run")).unwrap();
            let classes = vec![name.clone(), String::new(), name.clone()];
            let header = Header { method: name, classes, seed, rounds: rounds.len() as u64, ..Header::default() };
            let (mut file, mut summary) = (folder.start_rounds(&header).unwrap(), Summary::default());
            let rounds: Vec<RoundRecord> =
                (1..).zip(rounds).map(|(round, record)| RoundRecord { round, ..record }).collect();
            for round in &rounds {
                file.append(round).unwrap();
                summary.add(round);
            }
            file.finish().unwrap();
            folder.write_summary(&summary).unwrap();
            let read = salvage_rounds(&folder.file("rounds.jsonl")).unwrap();
            prop_assert_eq!(read.problems, Vec::<String>::new());
            prop_assert_eq!(read.header, header);
            prop_assert_eq!(read.rounds, rounds);
            prop_assert_eq!(read_summary(&folder.file("summary.json")).unwrap(), summary);
        }
    }
}
