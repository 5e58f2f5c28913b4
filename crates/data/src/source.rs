//! Where data come from: the catalogue, or files that people bring.

use std::path::PathBuf;

use crate::catalogue;
use crate::dataset::Dataset;
use crate::error::Error;
use crate::folder::{self, Folder};
use crate::skipped::Skipped;
use crate::table::{self, Table};

/// Where data come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A data set of the catalogue.
    Named {
        /// Its name.
        name: String,
        /// The folder of its files. The embedded set needs none.
        dir: Option<PathBuf>,
        /// Height and width to scale images to, for sets that are read from image files.
        size: Option<(usize, usize)>,
    },
    /// A folder of images.
    Folder(Folder),
    /// Rows of text or numbers.
    Table(Table),
}

/// The names of what people bring, beside those of the catalogue.
pub const OWN: [&str; 3] = ["folder", "csv", "jsonl"];

impl Source {
    /// Reads the data. What cannot be used is refused or left out, as `skipped` says; data with nothing to test on are
    /// refused.
    pub fn load(&self, skipped: &mut Skipped) -> Result<Dataset, Error> {
        let dataset = match self {
            Self::Named { name, dir, size } => return catalogue::load_sized(name, dir.as_deref(), *size, skipped),
            Self::Folder(folder) => folder::read(folder, skipped)?,
            Self::Table(table) => table::read(table, skipped)?,
        };
        if !dataset.test.is_empty() {
            return Ok(dataset);
        }
        let (path, key) = match self {
            Self::Table(table) => (table.train.clone(), "data.test"),
            Self::Folder(folder) => (folder.dir.clone(), "folders train and test"),
            Self::Named { .. } => return Ok(dataset),
        };
        let reason = format!(
            "there is nothing to test on: a class needs two samples to give one, and none of {} has; add samples or \
             give {key}",
            dataset.classes.len()
        );
        Err(Error::Unusable { path, line: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::folder::Layout;
    use crate::table::Format;

    #[test]
    fn nothing_to_test_on_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let train = dir.path().join("train.csv");
        let table = |test: Option<PathBuf>| {
            let (label, train) = ("label".to_string(), train.clone());
            let (text, features, key) = (None, None, None);
            let table = Table { format: Format::Csv, train, test, test_fraction: 0.2, label, text, features, key };
            Source::Table(table).load(&mut Skipped::default())
        };
        fs::write(&train, "label,x\na,1\nb,2\n").unwrap();
        let text = table(None).unwrap_err().to_string();
        assert!(
            text.contains("train.csv: there is nothing to test on: a class needs two samples to give one"),
            "{text}"
        );
        assert!(text.ends_with("none of 2 has; add samples or give data.test"), "{text}");
        // One class with two samples is enough; the other is not tested, which is said.
        fs::write(&train, "label,x\na,1\nb,2\nb,3\n").unwrap();
        let set = table(None).unwrap();
        assert_eq!(set.test.labels, [1]);
        assert_eq!(set.absent(), ["no test sample of 1 of 2 classes: 'a'"]);
        fs::write(&train, "label,x\na,1\na,2\nb,2\nb,3\n").unwrap();
        assert!(table(None).unwrap().absent().is_empty());
        let test = dir.path().join("test.csv");
        fs::write(&test, "label,x\n").unwrap();
        let text = table(Some(test)).unwrap_err().to_string();
        assert!(text.ends_with("test.csv: there is no row that can be used"), "{text}");
    }

    #[test]
    fn a_folder_with_one_image_a_class_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for class in ["a", "b"] {
            fs::create_dir(dir.path().join(class)).unwrap();
            image::GrayImage::new(2, 2).save(dir.path().join(class).join("1.png")).unwrap();
        }
        let folder = |dir: PathBuf| {
            let folder = Folder { dir, layout: Layout::Class, size: None, grey: true, test_fraction: 0.5 };
            Source::Folder(folder).load(&mut Skipped::default()).unwrap_err().to_string()
        };
        let text = folder(dir.path().to_path_buf());
        assert!(text.ends_with("none of 2 has; add samples or give folders train and test"), "{text}");
        // A test folder without images.
        let divided = tempfile::tempdir().unwrap();
        fs::create_dir(divided.path().join("test")).unwrap();
        fs::rename(dir.path(), divided.path().join("train")).unwrap();
        let text = folder(divided.path().to_path_buf());
        assert!(text.ends_with("test: there is no PNG or JPEG image in folders of classes"), "{text}");
    }
}
