//! Reader of AG News: rows of class, title and description without column names.

use std::path::Path;

use csv::ByteRecord;

use crate::csv_file::{CsvFile, field};
use crate::dataset::{Dataset, Normalisation, Split};
use crate::error::DataError;
use crate::request::Request;
use crate::skipped::Skipped;

const CLASSES: [&str; 4] = ["World", "Sports", "Business", "Sci/Tech"];

/// Reads AG News from `dir/ag_news_csv` or `dir`. A text is the title, a space and the description. Unusable rows are
/// rejected or skipped, depending on `skipped`.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    // A smaller training selection may be named `train_subset.csv`.
    let paths = request.files(|name| vec![name.to_string(), name.replace("train", "train_subset")])?;
    let (train, test) = (read_split(&paths[0], request.skipped)?, read_split(&paths[1], request.skipped)?);
    Ok(request.dataset(&CLASSES, train, test, Normalisation::default()))
}

fn read_split(path: &Path, skipped: &mut Skipped) -> Result<Split, DataError> {
    let mut file = CsvFile::open(path)?;
    let (mut record, mut rows) = (ByteRecord::new(), Vec::new());
    while let Some(line) = file.next(&mut record)? {
        rows.extend(skipped.keep(path, line, row(&record))?);
    }
    Ok(Split::texts(rows))
}

fn row(record: &ByteRecord) -> Result<(u16, String), String> {
    if record.len() != 3 {
        return Err(format!("expected class, title and description, found {} fields", record.len()));
    }
    let (class, title) = (field(record, 0, "class")?, field(record, 1, "title")?);
    let number = class.trim().parse::<u16>().ok().filter(|class| (1..=CLASSES.len() as u16).contains(class));
    let number = number.ok_or_else(|| format!("class '{class}': expected 1 to {}", CLASSES.len()))?;
    Ok((number - 1, format!("{title} {}", field(record, 2, "description")?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use std::fs;

    #[test]
    fn rows_as_published() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ag_news_csv");
        fs::create_dir(&folder).unwrap();
        fs::write(
            folder.join("train.csv"),
            "\"3\",\"A \"\"quoted\"\" title\",\"Words, and\nmore\"\n\"1\",\"b\",\"c\"\n",
        )
        .unwrap();
        fs::write(folder.join("test.csv"), "\"4\",\"x\",\"y\"\n").unwrap();
        let strict = || load("agnews", Some(dir.path()));
        let set = strict().unwrap();
        assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![2, 0], vec![3]));
        let crate::Inputs::Texts(texts) = &set.train.inputs else { panic!("no texts") };
        assert_eq!(texts, &["A \"quoted\" title Words, and\nmore", "b c"]);
        let remarks = set.remarks();
        assert!(remarks[0].starts_with("2 training samples, but AG News has 120,000"), "{remarks:?}");
        assert!(remarks[1].starts_with("1 test samples, but AG News has 7,600"), "{remarks:?}");
        fs::write(folder.join("test.csv"), "\"4\",\"x\",\"y\"\n\"5\",\"x\",\"y\"\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.csv:2: class '5': expected 1 to 4; --skip-bad"));
        let mut lax = Skipped::new(true);
        assert_eq!(
            (SetName::Agnews.entry().load(Some(dir.path()), None, &mut lax).unwrap().test.len(), lax.count),
            (1, 1)
        );
        fs::write(folder.join("test.csv"), "\"4\",\"x\"\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.csv:1: expected class, title"));
        fs::write(folder.join("test.csv"), b"\"4\",\"x\",\"\xff\"\n").unwrap();
        let text = strict().unwrap_err().to_string();
        assert!(text.contains("test.csv:1: column 'description': invalid UTF-8 at byte 0"), "{text}");
    }
}
