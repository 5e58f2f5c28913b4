//! A CSV file, row by row. A quote that is never closed is an error: it would swallow all following rows.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Read};
use std::path::Path;

use csv::ByteRecord;

use crate::error::DataError;
use crate::files;

/// A separate row after the last one. If it is found inside another row, a quote is open.
const END: &[u8] = b"\n\0fedelity end of file\0";

pub(crate) struct CsvFile<'a> {
    path: &'a Path,
    reader: csv::Reader<LastBytes<Chain<File, &'static [u8]>>>,
    delimiter: u8,
}

/// A reader that keeps the bytes that were read last.
struct LastBytes<R> {
    inner: R,
    last: Vec<u8>,
    /// How many bytes were read in all.
    end: u64,
}

impl<R> LastBytes<R> {
    /// The byte before a position, if it is among those read last.
    fn before(&self, position: u64) -> Option<u8> {
        let back = usize::try_from(self.end.checked_sub(position)?).ok()?;
        self.last.iter().nth_back(back).copied()
    }
}

impl<R: Read> Read for LastBytes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if read > 0 {
            self.last.clear();
            self.last.extend_from_slice(&buffer[..read]);
            self.end += read as u64;
        }
        Ok(read)
    }
}

/// The longest first row in which the separator is looked for.
const LONGEST_HEADER: u64 = 1 << 20;

impl<'a> CsvFile<'a> {
    /// Opens a file of comma-separated values; tab-separated if its name ends in `.tsv`.
    pub(crate) fn open(path: &'a Path) -> Result<Self, DataError> {
        Self::separated(path, if is_tsv(path) { b'\t' } else { b',' })
    }

    /// Opens a file with column names in the first row. The separator is the one of comma, semicolon and tab that gives
    /// most columns; it is the tab if the file name ends in `.tsv`.
    pub(crate) fn table(path: &'a Path) -> Result<Self, DataError> {
        if is_tsv(path) {
            return Self::separated(path, b'\t');
        }
        let (file, _) = files::open(path)?;
        let mut line = Vec::new();
        BufReader::new(file.take(LONGEST_HEADER)).read_until(b'\n', &mut line).map_err(DataError::io("read", path))?;
        let (mut quoted, mut counts) = (false, [0usize; SEPARATORS.len()]);
        for byte in line {
            quoted ^= byte == b'"';
            if let Some(at) = SEPARATORS.iter().position(|&separator| separator == byte && !quoted) {
                counts[at] += 1;
            }
        }
        // The first of equals is the comma.
        let best = (0..SEPARATORS.len()).rev().max_by_key(|&at| counts[at]).unwrap_or_default();
        Self::separated(path, SEPARATORS[best])
    }

    fn separated(path: &'a Path, delimiter: u8) -> Result<Self, DataError> {
        let (file, _) = files::open(path)?;
        let mut builder = csv::ReaderBuilder::new();
        let bytes = LastBytes { inner: file.chain(END), last: Vec::new(), end: 0 };
        let reader = builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(bytes);
        Ok(Self { path, reader, delimiter })
    }

    /// Whether fields are separated by semicolons, as where numbers are written with a comma.
    pub(crate) fn has_semicolons(&self) -> bool {
        self.delimiter == b';'
    }

    /// The next row and its line; `None` at the end of the file.
    pub(crate) fn next(&mut self, record: &mut ByteRecord) -> Result<Option<u64>, DataError> {
        let wrong = |line, reason| DataError::unusable(self.path, line, reason);
        let more = self.reader.read_byte_record(record);
        let more = more.map_err(|error| wrong(error.position().map(csv::Position::line), error.to_string()))?;
        let line = self.line_of(record);
        let last = record.iter().next_back().unwrap_or_default();
        match record.len() {
            _ if !more => Ok(None),
            1 if last == &END[1..] => Ok(None),
            _ if last.ends_with(&END[1..]) => {
                let reason = "a quote opened here or above is never closed: rows would be lost".to_string();
                Err(wrong(Some(line), reason))
            }
            _ => Ok(Some(line)),
        }
    }

    /// The line on which the row that was read last starts. The row's own position is before empty lines, and before the
    /// second byte of a line end of two.
    fn line_of(&self, record: &ByteRecord) -> u64 {
        let end = self.reader.position();
        let within = record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
        let ended = u64::from(self.reader.get_ref().before(end.byte()) == Some(b'\n'));
        end.line().saturating_sub(within + ended)
    }

    /// The first row as column names, without duplicates.
    pub(crate) fn header(&mut self) -> Result<Vec<String>, DataError> {
        let mut record = ByteRecord::new();
        let wrong = |reason: String| DataError::unusable(self.path, Some(1), reason);
        if self.next(&mut record)?.is_none() {
            return Err(wrong("the row with the column names is missing".to_string()));
        }
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).map(|name| name.trim().to_string());
        let names: Result<Vec<String>, _> = record.iter().map(name).collect();
        let names = names.map_err(|_| wrong(format!("invalid UTF-8 in the column names: {NOT_UTF8}")))?;
        let mut seen = HashSet::new();
        match names.iter().find(|name| !seen.insert(*name)) {
            Some(name) => Err(wrong(format!("there are two columns '{name}'"))),
            None => Ok(names),
        }
    }
}

/// What to do about a file in another encoding. Its rows must not be skipped one by one: whole sites would be lost.
pub(crate) const NOT_UTF8: &str = "the file is not UTF-8; save it as UTF-8 (in Excel: 'CSV UTF-8'), or convert it";

/// Separators of columns, the usual one first.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

fn is_tsv(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("tsv"))
}

pub(crate) fn field<'a>(record: &'a ByteRecord, place: usize, name: &str) -> Result<&'a str, String> {
    std::str::from_utf8(record.get(place).unwrap_or_default())
        .map_err(|error| format!("column '{name}': invalid UTF-8 at byte {} of the field", error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Vec<(u64, usize)>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.csv");
        std::fs::write(&path, text).unwrap();
        let mut file = CsvFile::open(&path).unwrap();
        let (mut record, mut found) = (ByteRecord::new(), Vec::new());
        while let Some(line) = file.next(&mut record).map_err(|error| error.to_string())? {
            found.push((line, record.len()));
        }
        Ok(found)
    }

    #[test]
    fn the_first_row_shows_the_separator() {
        let dir = tempfile::tempdir().unwrap();
        let header = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            CsvFile::table(&path).unwrap().header().unwrap()
        };
        assert_eq!(header("a.csv", "a,b;c\n1;2;3,4\n"), ["a", "b;c"], "as many commas as semicolons");
        assert_eq!(header("a.csv", "a;b, in kg;c\n"), ["a", "b, in kg", "c"]);
        assert_eq!(header("a.csv", "\u{feff}a;\"b,c,d\"\r\n1;2\r\n"), ["a", "b,c,d"]);
        assert_eq!(header("a.csv", "a\tb\n"), ["a", "b"]);
        assert_eq!(header("a.tsv", "a,b\tc\n"), ["a,b", "c"]);
        assert_eq!(header("a.csv", "a\n"), ["a"]);
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        for end in ["\n", "\r\n"] {
            let text = "\u{feff}a,b\n1,2\n\"x\ny\",\"\"\"\n\"\n3,4\n\n\n5,6\n7,8".replace('\n', end);
            let lines: Vec<u64> = rows(&text).unwrap().into_iter().map(|(line, _)| line).collect();
            assert_eq!(lines, [1, 2, 3, 6, 9, 10], "{end:?}");
            // More than is read at once.
            let many = rows(&format!("some,\"fields\"{end}").repeat(5_000)).unwrap();
            assert!((1..).zip(&many).all(|(line, row)| row.0 == line) && many.len() == 5_000, "{end:?}");
            let open = rows(&"a,b\n1,2\n3,\"4\n5,6\n".replace('\n', end)).unwrap_err();
            assert!(open.contains("a.csv:3: a quote"), "{open}");
        }
    }

    #[test]
    fn an_open_quote_is_found_wherever_it_is() {
        for end in ["", "\n", "\r\n", "\n\n"] {
            assert_eq!(rows(&format!("a,b\n\"x\ny\",2\n3,\"4\"{end}")).unwrap(), [(1, 2), (2, 2), (4, 2)]);
        }
        assert_eq!(rows("").unwrap(), []);
        for text in ["a,b\n1,\"2\n3,4\n", "a,b\n\"1,2\n3,4", "\"a,b\n1,2\n"] {
            let error = rows(text).unwrap_err();
            assert!(error.contains("never closed"), "{text:?}: {error}");
        }
        assert!(rows("a,b\n1,\"2\n3,4\n").unwrap_err().contains("a.csv:2: "));
    }
}
