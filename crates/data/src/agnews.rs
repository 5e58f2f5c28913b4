//! Reader of AG News: rows of class, title and description without column names.

use std::path::Path;

use csv::ByteRecord;

use crate::csv_file::{CsvFile, field};
use crate::dataset::{Dataset, Inputs, Normalisation, Shape, Split};
use crate::error::Error;
use crate::files::{self, Wanted};
use crate::skipped::Skipped;

/// The official files. A smaller selection for training may be named `train_subset.csv`.
pub(crate) const FILES: [&str; 2] = ["train.csv", "test.csv"];
/// The sub folder of the files.
pub(crate) const FOLDER: &str = "ag_news_csv";
const NAME: &str = "agnews";
const CLASSES: [&str; 4] = ["World", "Sports", "Business", "Sci/Tech"];

/// Reads AG News from `dir/ag_news_csv` or `dir`. A text is the title, a space and the description. What
/// cannot be used is refused or left out, as `skipped` says.
pub(crate) fn read(dir: &Path, skipped: &mut Skipped) -> Result<Dataset, Error> {
    let wanted = [
        Wanted { name: FILES[0], variants: vec![FILES[0].to_string(), "train_subset.csv".to_string()] },
        Wanted { name: FILES[1], variants: vec![FILES[1].to_string()] },
    ];
    let paths = files::locate(NAME, dir, FOLDER, &[], &wanted)?;
    Ok(Dataset {
        name: NAME.to_string(),
        classes: CLASSES.map(String::from).to_vec(),
        shape: Shape::Text,
        train: read_split(&paths[0], skipped)?,
        test: read_split(&paths[1], skipped)?,
        normalisation: Normalisation::default(),
    })
}

fn read_split(path: &Path, skipped: &mut Skipped) -> Result<Split, Error> {
    let mut file = CsvFile::open(path)?;
    let (mut record, mut texts, mut labels) = (ByteRecord::new(), Vec::new(), Vec::new());
    while let Some(line) = file.next(&mut record)? {
        match row(&record) {
            Ok((label, text)) => {
                labels.push(label);
                texts.push(text);
            }
            Err(reason) => skipped.bad(path, Some(line), reason)?,
        }
    }
    Ok(Split { inputs: Inputs::Texts(texts), labels, keys: None })
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
    use std::fs;

    #[test]
    fn rows_as_published() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        fs::write(
            folder.join("train.csv"),
            "\"3\",\"A \"\"quoted\"\" title\",\"Words, and\nmore\"\n\"1\",\"b\",\"c\"\n",
        )
        .unwrap();
        fs::write(folder.join("test.csv"), "\"4\",\"x\",\"y\"\n").unwrap();
        let strict = || read(dir.path(), &mut Skipped::default());
        let set = strict().unwrap();
        assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![2, 0], vec![3]));
        let Inputs::Texts(texts) = &set.train.inputs else { panic!("no texts") };
        assert_eq!(texts, &["A \"quoted\" title Words, and\nmore", "b c"]);
        fs::write(folder.join("test.csv"), "\"4\",\"x\",\"y\"\n\"5\",\"x\",\"y\"\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.csv:2: class '5': expected 1 to 4; --skip-bad"));
        let mut lax = Skipped::new(true);
        assert_eq!((read(dir.path(), &mut lax).unwrap().test.len(), lax.count), (1, 1));
        fs::write(folder.join("test.csv"), "\"4\",\"x\"\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.csv:1: expected class, title"));
        fs::write(folder.join("test.csv"), b"\"4\",\"x\",\"\xff\"\n").unwrap();
        let text = strict().unwrap_err().to_string();
        assert!(text.contains("test.csv:1: column 'description': not UTF-8 from byte 0"), "{text}");
    }
}
