//! Reader of AG News: rows of class, title and description without column names.

use std::path::Path;

use csv::StringRecord;

use crate::dataset::{Dataset, Inputs, Normalisation, Shape, Split};
use crate::error::Error;
use crate::files::{self, Wanted};

/// The official files. A smaller selection for training may be named `train_subset.csv`.
pub(crate) const FILES: [&str; 2] = ["train.csv", "test.csv"];
/// The sub folder of the files.
pub(crate) const FOLDER: &str = "ag_news_csv";
const NAME: &str = "agnews";
const CLASSES: [&str; 4] = ["World", "Sports", "Business", "Sci/Tech"];

/// Reads AG News from `dir/ag_news_csv` or `dir`. A text is the title, a space and the description.
pub(crate) fn read(dir: &Path) -> Result<Dataset, Error> {
    let wanted = [
        Wanted { name: FILES[0], variants: vec![FILES[0].to_string(), "train_subset.csv".to_string()] },
        Wanted { name: FILES[1], variants: vec![FILES[1].to_string()] },
    ];
    let paths = files::locate(NAME, dir, FOLDER, &[], &wanted)?;
    Ok(Dataset {
        name: NAME.to_string(),
        classes: CLASSES.map(String::from).to_vec(),
        shape: Shape::Text,
        train: read_split(&paths[0])?,
        test: read_split(&paths[1])?,
        normalisation: Normalisation::default(),
    })
}

fn read_split(path: &Path) -> Result<Split, Error> {
    let wrong = |line: Option<u64>, reason: String| Error::Unusable { path: path.to_path_buf(), line, reason };
    let (file, _) = files::open(path)?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
    let (mut record, mut texts, mut labels) = (StringRecord::new(), Vec::new(), Vec::new());
    loop {
        let more = reader.read_record(&mut record);
        if !more.map_err(|error| wrong(error.position().map(csv::Position::line), error.to_string()))? {
            break;
        }
        let line = record.position().map(csv::Position::line);
        let (Some(class), Some(title), Some(description), 3) =
            (record.get(0), record.get(1), record.get(2), record.len())
        else {
            return Err(wrong(line, format!("expected class, title and description, found {} fields", record.len())));
        };
        match class.trim().parse::<u16>() {
            Ok(class) if (1..=CLASSES.len() as u16).contains(&class) => labels.push(class - 1),
            _ => return Err(wrong(line, format!("class '{class}': expected 1 to {}", CLASSES.len()))),
        }
        texts.push(format!("{title} {description}"));
    }
    Ok(Split { inputs: Inputs::Texts(texts), labels, keys: None })
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
        let set = read(dir.path()).unwrap();
        assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![2, 0], vec![3]));
        let Inputs::Texts(texts) = &set.train.inputs else { panic!("no texts") };
        assert_eq!(texts, &["A \"quoted\" title Words, and\nmore", "b c"]);
        fs::write(folder.join("test.csv"), "\"4\",\"x\",\"y\"\n\"5\",\"x\",\"y\"\n").unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().ends_with("test.csv:2: class '5': expected 1 to 4"));
        fs::write(folder.join("test.csv"), "\"4\",\"x\"\n").unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("test.csv:1: expected class, title"));
        fs::write(folder.join("test.csv"), b"\"4\",\"x\",\"\xff\"\n").unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("test.csv:1"));
    }
}
