//! Unlabelled texts, for a model to read.

use std::path::Path;

use super::TableFormat;
use super::rows::each_row;
use crate::error::DataError;
use crate::files::{self, utf8};
use crate::skipped::Skipped;

/// The texts of a file with their line numbers: a column of CSV (`.csv`, `.tsv`) or JSON Lines (`.jsonl`), or else each
/// non-empty line. Unusable rows are rejected or skipped, depending on `skipped`.
pub fn texts(path: &Path, column: &str, skipped: &mut Skipped) -> Result<Vec<(u64, String)>, DataError> {
    let end = path.extension().map(|end| end.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let format = match end.as_str() {
        "csv" | "tsv" => Some(TableFormat::Csv),
        "jsonl" => Some(TableFormat::Jsonl),
        _ => None,
    };
    let mut found = Vec::new();
    let mut add = |line: u64, text: Result<String, String>| {
        found.extend(skipped.keep(path, line, text)?.map(|text| (line, text)));
        Ok(true)
    };
    match format {
        Some(format) => {
            let column = column.to_string();
            each_row(format, path, &[&column], |line, row| {
                add(line, row.and_then(|row| row.text(&column, 0))).map(|_| ())
            })?;
        }
        None => files::lines(path, |line, text| add(line, utf8(text).map(String::from)))?,
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_file() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, content: &[u8], column: &str, lax: bool| {
            let path = dir.path().join(name);
            std::fs::write(&path, content).unwrap();
            let mut skipped = Skipped::new(lax);
            texts(&path, column, &mut skipped).map(|found| (found, skipped.count)).map_err(|error| error.to_string())
        };
        let two = |line: u64| Ok((vec![(line, "one, two".to_string()), (line + 2, "three".to_string())], 0));
        assert_eq!(read("a.txt", b"one, two\n\nthree\n", "text", false), two(1));
        assert_eq!(read("a.csv", b"n,body\n1,\"one, two\"\n", "body", false).unwrap().0.len(), 1);
        assert_eq!(read("a.jsonl", b"{\"text\": \"one, two\"}\n\n{\"text\": \"three\"}\n", "text", false), two(1));
        let missing = read("b.csv", b"n,body\n1,x\n", "text", false).unwrap_err();
        assert!(missing.contains("there is no column 'text'; the columns are n, body"), "{missing}");
        let broken = read("b.jsonl", b"{\"text\": \"x\"}\n{\"text\n", "text", false).unwrap_err();
        assert!(broken.contains("b.jsonl:2: not JSON") && broken.contains("--skip-bad"), "{broken}");
        assert_eq!(read("c.txt", b"x\n\xff\ny\n", "text", true).unwrap().1, 1);
    }
}
