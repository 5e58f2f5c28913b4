//! Sources of data: the catalogue, or the user's own files.

use std::fs;
use std::path::{Path, PathBuf};

use fedelity_keys::{Selected, keys};

use crate::arrays::{self, ArraySource};
use crate::catalogue::SetName;
use crate::dataset::Dataset;
use crate::error::DataError;
use crate::folder::{self, Folder};
use crate::part::{NewData, Part};
use crate::skipped::Skipped;
use crate::table::{self, TableForm, TableFormat, TableReading, TableSource};

/// The data set: one from the catalogue (`fedelity data list`), or your own data as `folder`, `csv` or `jsonl`; `arrays` are
/// given by a program (`fedelity.Data` in Python).
#[keys(tag = "name", default = "fashion-mnist-mini")]
pub enum DataSource {
    /// A folder of images.
    Folder(Folder),
    /// Rows with column names in the first line, separated by commas, semicolons or tabs.
    Csv(TableSource),
    /// One JSON object per line.
    Jsonl(TableSource),
    /// Arrays that a program gives.
    Arrays(ArraySource),
    /// A data set of the catalogue.
    #[key(words = SetName)]
    Named(NamedSource),
}

/// A data set from the catalogue, and where it is.
#[keys]
pub struct NamedSource {
    /// The data set.
    pub name: SetName,
    /// The folder that holds the data sets, each in its own subfolder; `fedelity data fetch` puts them there. `--data-dir`
    /// and FEDELITY_DATA replace it. By default, it is `data` in the current folder. The embedded set needs none.
    #[key(default = "data", what = "the path of a folder", unless("name", is_embedded))]
    pub dir: Option<PathBuf>,
    /// Height and width to scale images to, for sets that are read from image files.
    #[key(min = 1, max = 4096, what = "[height, width], each 1 to 4096", only("name", is_scaled))]
    pub size: Option<(usize, usize)>,
}

fn is_embedded(name: &str) -> bool {
    SetName::from_name(name).is_some_and(|set| set.entry().is_embedded())
}

fn is_scaled(name: &str) -> bool {
    SetName::from_name(name).is_some_and(|set| set.entry().scaled)
}

impl DataSource {
    /// The names for the user's own files, besides those of the catalogue.
    pub fn own() -> Vec<&'static str> {
        let own = |name: &&str| SetName::from_name(name).is_none() && *name != arrays::NAME;
        Self::SELECTOR.words().into_iter().filter(own).collect()
    }

    /// What the user's own data at a path are called, and the key that names the path: a table by the end of its name, a
    /// folder by what is in it. Nothing for other files.
    pub fn at(path: &Path) -> Option<(&'static str, &'static str)> {
        let table = |path: &Path| TableFormat::of(path).map(|format| (format.name(), "train"));
        if !path.is_dir() {
            return table(path);
        }
        let inside = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        Some(inside.filter(|path| path.is_file()).find_map(|path| table(&path)).unwrap_or(("folder", "path")))
    }

    /// The catalogue's name of the set, if it is one.
    pub fn set(&self) -> Option<SetName> {
        match self {
            Self::Named(set) => Some(set.name),
            Self::Folder(_) | Self::Csv(_) | Self::Jsonl(_) | Self::Arrays(_) => None,
        }
    }

    /// Whether data of this name are read from image files, which can be scaled.
    pub fn is_scaled(name: &str) -> bool {
        Self::SELECTOR.words_with("size").contains(&name)
    }

    /// Reads the data. Unusable samples are rejected or skipped, depending on `skipped`; data without test samples are
    /// rejected.
    pub fn load(&self, skipped: &mut Skipped) -> Result<Dataset, DataError> {
        let dataset = self.read(None, true, skipped)?;
        let (path, key) = match self {
            Self::Named(_) | Self::Arrays(_) => return Ok(dataset),
            Self::Folder(folder) => (folder.path.as_path(), "folders train and test"),
            Self::Csv(table) | Self::Jsonl(table) => (table.train.first(), "data.test"),
        };
        if !dataset.test.is_empty() {
            return Ok(dataset);
        }
        let reason = format!(
            "there are no test samples: a class needs two samples to spare one, and none of {} has two; add samples or \
             {key}",
            dataset.classes.len()
        );
        Err(DataError::unusable(path, None, reason))
    }

    /// Reads data for a trained model, whose rows have this form. Without a `part`, it is what the data set calls its
    /// test samples, or all samples if it makes no such difference.
    pub fn load_new(
        &self,
        form: Option<&TableForm>,
        part: Option<Part>,
        mut skipped: Skipped,
    ) -> Result<NewData, DataError> {
        let divided = match self {
            Self::Named(_) | Self::Arrays(_) => true,
            Self::Folder(folder) => folder.is_divided(),
            Self::Csv(table) | Self::Jsonl(table) => table.test.is_some(),
        };
        // All samples of undivided data are read as test samples.
        let whole = !divided && matches!(part, None | Some(Part::All));
        let dataset = self.read(form, !whole, &mut skipped)?;
        let part = part.unwrap_or(if divided { Part::Test } else { Part::All });
        Ok(NewData { dataset, part, skipped })
    }

    /// Reads the data. If they make no difference between training and test samples, some become test samples if `divide`
    /// is set, and all otherwise.
    fn read(&self, form: Option<&TableForm>, divide: bool, skipped: &mut Skipped) -> Result<Dataset, DataError> {
        let reading = TableReading { form, divide };
        match self {
            Self::Named(set) => set.name.entry().load(set.dir.as_deref(), set.size, skipped),
            Self::Folder(folder) => folder::read(folder, divide, skipped),
            Self::Arrays(_) => Err(ArraySource::refuse()),
            Self::Csv(table) => table::read(TableFormat::Csv, table, reading, skipped),
            Self::Jsonl(table) => table::read(TableFormat::Jsonl, table, reading, skipped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{Colour, FolderLayout};
    use crate::table::TableFiles;

    #[test]
    fn nothing_to_test_on_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let train = dir.path().join("train.csv");
        let table = |test: Option<PathBuf>| {
            let (label, train) = ("label".to_string(), TableFiles::One(train.clone()));
            let test = test.map(TableFiles::One);
            let (text, features, key) = (None, None, None);
            let (categories, ignore) = (Vec::new(), Vec::new());
            let test_fraction = Some(0.2);
            let table = TableSource { train, test, test_fraction, label, text, features, categories, ignore, key };
            DataSource::Csv(table).load(&mut Skipped::default())
        };
        fs::write(&train, "label,x\na,1\nb,2\n").unwrap();
        let text = table(None).unwrap_err().to_string();
        assert!(
            text.contains("train.csv: there are no test samples: a class needs two samples to spare one"),
            "{text}"
        );
        assert!(text.ends_with("none of 2 has two; add samples or data.test"), "{text}");
        // One class with two samples is enough; the other is not tested, which is noted.
        fs::write(&train, "label,x\na,1\nb,2\nb,3\n").unwrap();
        let set = table(None).unwrap();
        assert_eq!(set.test.labels, [1]);
        assert_eq!(set.absent(), ["no test sample of 1 of 2 classes: 'a'"]);
        fs::write(&train, "label,x\na,1\na,2\nb,2\nb,3\n").unwrap();
        assert!(table(None).unwrap().absent().is_empty());
        let test = dir.path().join("test.csv");
        fs::write(&test, "label,x\n").unwrap();
        let text = table(Some(test)).unwrap_err().to_string();
        assert!(text.ends_with("test.csv: no row can be used"), "{text}");
    }

    #[test]
    fn a_folder_with_one_image_per_class_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for class in ["a", "b"] {
            fs::create_dir(dir.path().join(class)).unwrap();
            image::GrayImage::new(2, 2).save(dir.path().join(class).join("1.png")).unwrap();
        }
        let folder = |path: PathBuf| {
            let (layout, colour) = (FolderLayout::Class, Colour::Grey);
            let folder = Folder { path, layout, size: None, colour, test_fraction: 0.5 };
            DataSource::Folder(folder).load(&mut Skipped::default()).unwrap_err().to_string()
        };
        let text = folder(dir.path().to_path_buf());
        assert!(text.ends_with("none of 2 has two; add samples or folders train and test"), "{text}");
        // A test folder without images.
        let divided = tempfile::tempdir().unwrap();
        fs::create_dir(divided.path().join("test")).unwrap();
        fs::rename(dir.path(), divided.path().join("train")).unwrap();
        let text = folder(divided.path().to_path_buf());
        assert!(text.ends_with("test: no PNG or JPEG images in class folders"), "{text}");
    }
}
