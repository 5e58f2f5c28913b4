//! Reader of LEAF's FEMNIST: JSON files of writers and their characters.
//!
//! A file has `users`, `num_samples` and `user_data`, which maps a writer to `x`, images of 784 numbers from 0 to 1, and
//! `y`, labels from 0 to 61. Files are read in a stream, so memory is that of the images as bytes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::dataset::{Dataset, ImageShape, Keys, Shape, Split};
use crate::emnist::{CHARACTERS, names};
use crate::error::{Error, Place};
use crate::files;
use crate::folder::measure;
use crate::partition::hold_out;

/// The sub folder of the files.
pub(crate) const FOLDER: &str = "femnist";
/// What is looked for in it.
pub(crate) const FILES: [&str; 2] = ["train/*.json and test/*.json", "or all_data/*.json"];
const NAME: &str = "femnist";
const PIXELS: usize = 28 * 28;
/// The share of each class that is for testing where LEAF has not split the data: LEAF's own.
const TEST_FRACTION: f64 = 0.1;

/// Reads FEMNIST from `dir/femnist` or `dir`, or from `data` in one of them.
pub(crate) fn read(dir: &Path) -> Result<Dataset, Error> {
    let mut places = Vec::new();
    for folder in [dir.join(FOLDER), dir.join(FOLDER).join("data"), dir.to_path_buf(), dir.join("data")] {
        let (train, test) = (json_files(&folder.join("train"))?, json_files(&folder.join("test"))?);
        let all = json_files(&folder.join("all_data"))?;
        let (train, test) = if !train.is_empty() && !test.is_empty() {
            (read_files(&train)?, read_files(&test)?)
        } else if !all.is_empty() {
            let all = read_files(&all)?;
            let held = hold_out(&all.labels, TEST_FRACTION);
            all.divide(&held)
        } else {
            places.push(Place { exists: folder.is_dir(), folder, missing: FILES.map(String::from).to_vec() });
            continue;
        };
        return Ok(Dataset {
            name: NAME.to_string(),
            classes: names(CHARACTERS),
            shape: Shape::Image(ImageShape { channels: 1, height: 28, width: 28 }),
            normalisation: measure(&train, 1),
            train,
            test,
        });
    }
    Err(Error::Missing { dataset: NAME, places })
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |source| Error::Io { action: "read", source, path: folder.to_path_buf() };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "json") {
            found.push(path);
        }
    }
    // all_data_2.json comes before all_data_10.json.
    let number = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    found.sort_by_key(|path| (number(path), path.clone()));
    Ok(found)
}

/// What is read so far.
#[derive(Default)]
struct Gathered {
    pixels: Vec<u8>,
    labels: Vec<u16>,
    keys: Vec<u32>,
    writers: Vec<String>,
}

fn read_files(paths: &[PathBuf]) -> Result<Split, Error> {
    let gathered = RefCell::new(Gathered::default());
    for path in paths {
        let (file, _) = files::open(path)?;
        let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, file));
        let read = FileSeed(&gathered).deserialize(&mut reader).and_then(|()| reader.end());
        read.map_err(|error| {
            let line = (error.line() > 0).then_some(error.line() as u64);
            Error::Unusable { path: path.clone(), line, reason: format!("not LEAF's FEMNIST: {error}") }
        })?;
    }
    let Gathered { pixels, labels, keys, writers } = gathered.into_inner();
    let mut split = Split::images(pixels, labels);
    split.keys = Some(Keys { of: keys, names: writers });
    Ok(split)
}

/// A whole file.
struct FileSeed<'a>(&'a RefCell<Gathered>);
/// `user_data`.
struct WritersSeed<'a>(&'a RefCell<Gathered>);
/// One writer.
struct WriterSeed<'a>(&'a RefCell<Gathered>);
/// `x`.
struct ImagesSeed<'a>(&'a RefCell<Gathered>);
/// One image.
struct ImageSeed<'a>(&'a RefCell<Gathered>);

macro_rules! seed {
    ($name:ident, $call:ident) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();
            fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
                from.$call(self)
            }
        }
    };
}
seed!(FileSeed, deserialize_map);
seed!(WritersSeed, deserialize_map);
seed!(WriterSeed, deserialize_map);
seed!(ImagesSeed, deserialize_seq);
seed!(ImageSeed, deserialize_seq);

impl<'de> Visitor<'de> for FileSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with user_data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let first = self.0.borrow().writers.len();
        let (mut found, mut users, mut samples) = (false, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "user_data" => {
                    map.next_value_seed(WritersSeed(self.0))?;
                    found = true;
                }
                "users" => users = Some(map.next_value::<Vec<String>>()?),
                "num_samples" => samples = Some(map.next_value::<Vec<usize>>()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !found {
            return Err(A::Error::custom("there is no user_data"));
        }
        self.0.borrow().check(first, users, samples).map_err(A::Error::custom)
    }
}

impl Gathered {
    /// Whether the writers from `first` on are those that a file lists, with as many images as it says.
    fn check(&self, first: usize, users: Option<Vec<String>>, samples: Option<Vec<usize>>) -> Result<(), String> {
        let Some(users) = users else { return Ok(()) };
        let mut counts: HashMap<&str, usize> = self.writers[first..].iter().map(|name| (name.as_str(), 0)).collect();
        for &key in self.keys.iter().rev().take_while(|&&key| key as usize >= first) {
            counts.entry(&self.writers[key as usize]).and_modify(|count| *count += 1);
        }
        if let Some(name) = users.iter().find(|name| !counts.contains_key(name.as_str())) {
            return Err(format!("users lists writer '{name}', who is not in user_data"));
        }
        if let Some(name) = self.writers[first..].iter().find(|name| !users.contains(name)) {
            return Err(format!("user_data has writer '{name}', who is not in users"));
        }
        let Some(samples) = samples else { return Ok(()) };
        if samples.len() != users.len() {
            return Err(format!("num_samples has {} numbers for {} users", samples.len(), users.len()));
        }
        match users.iter().zip(samples).find(|(name, said)| counts[name.as_str()] != *said) {
            Some((name, said)) => {
                Err(format!("num_samples says {said} for writer '{name}', who has {}", counts[name.as_str()]))
            }
            None => Ok(()),
        }
    }
}

impl<'de> Visitor<'de> for WritersSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of writers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(writer) = map.next_key::<String>()? {
            map.next_value_seed(WriterSeed(self.0))?;
            let mut all = self.0.borrow_mut();
            let (images, labels) = (all.pixels.len() / PIXELS, all.labels.len());
            if images != labels {
                let before = all.keys.len();
                let (x, y) = (images - before, labels - before);
                return Err(A::Error::custom(format!("writer '{writer}' has {x} images but {y} labels")));
            }
            let key = all.writers.len() as u32;
            all.keys.resize(labels, key);
            all.writers.push(writer);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for WriterSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with x and y")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "x" => map.next_value_seed(ImagesSeed(self.0))?,
                "y" => {
                    let labels: Vec<u16> = map.next_value()?;
                    if let Some(label) = labels.iter().find(|&&label| usize::from(label) >= CHARACTERS.len()) {
                        return Err(A::Error::custom(format!("label {label}: expected 0 to {}", CHARACTERS.len() - 1)));
                    }
                    self.0.borrow_mut().labels.extend(labels);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for ImagesSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of images")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut images: A) -> Result<(), A::Error> {
        while images.next_element_seed(ImageSeed(self.0))?.is_some() {}
        Ok(())
    }
}

impl<'de> Visitor<'de> for ImageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {PIXELS} numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<(), A::Error> {
        let mut all = self.0.borrow_mut();
        let before = all.pixels.len();
        while let Some(number) = numbers.next_element::<f32>()? {
            if !(0.0..=1.0).contains(&number) {
                return Err(A::Error::custom(format!("pixel {number}: expected 0 to 1")));
            }
            all.pixels.push((number * 255.0).round() as u8);
        }
        let found = all.pixels.len() - before;
        if found == PIXELS {
            Ok(())
        } else {
            Err(A::Error::custom(format!("an image of {found} numbers, not {PIXELS}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(labels: &[u16], pixel: f32) -> serde_json::Value {
        let x: Vec<Vec<f32>> = labels.iter().map(|_| vec![pixel; PIXELS]).collect();
        serde_json::json!({"x": x, "y": labels})
    }

    fn file(dir: &Path, name: &str, user_data: serde_json::Value) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let (users, samples): (Vec<&String>, Vec<usize>) =
            user_data.as_object().unwrap().iter().map(|(name, own)| (name, own["y"].as_array().unwrap().len())).unzip();
        let json = serde_json::json!({"users": users, "num_samples": samples, "user_data": user_data});
        fs::write(path, json.to_string()).unwrap();
    }

    #[test]
    fn writers_are_keys() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("femnist/data");
        file(&own, "train/all_data_10_niid_0_keep_0_train_9.json", serde_json::json!({"f3": writer(&[61], 1.0)}));
        let two = serde_json::json!({"f1": writer(&[0, 35], 0.0), "f2": writer(&[7], 128.0 / 255.0)});
        file(&own, "train/all_data_2_niid_0_keep_0_train_9.json", two);
        file(&own, "test/all_data_0_niid_0_keep_0_test_9.json", serde_json::json!({"f1": writer(&[1], 0.5)}));
        let set = read(dir.path()).unwrap();
        assert_eq!(set.train.labels, [0, 35, 7, 61]);
        let keys = set.train.keys.as_ref().unwrap();
        assert_eq!((&keys.of[..], &keys.names[..]), (&[0, 0, 1, 2][..], &["f1", "f2", "f3"].map(String::from)[..]));
        assert_eq!((set.train.image(2)[5], set.train.image(3)[783], set.test.image(0)[0]), (128, 255, 128));
        assert_eq!(set.classes[35], "Z");
    }

    #[test]
    fn files_that_leaf_has_not_split() {
        let dir = tempfile::tempdir().unwrap();
        let many: Vec<u16> = (0..40).map(|i| i % 2).collect();
        file(dir.path(), "all_data/all_data_0.json", serde_json::json!({"w": writer(&many, 0.2)}));
        let set = read(dir.path()).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (36, 4));
        assert_eq!(set.train.keys.unwrap().of.len(), 36);
    }

    #[test]
    fn damaged_files_say_where() {
        let dir = tempfile::tempdir().unwrap();
        let bad = |content: &str, reason: &str| {
            let path = dir.path().join("all_data/a.json");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            let text = read(dir.path()).unwrap_err().to_string();
            assert!(text.contains("a.json:") && text.contains(reason), "{text}");
        };
        bad("{\"users\": []}", "there is no user_data");
        bad("{\"user_data\": {\"w\": {\"x\": [[0.5]], \"y\": [1]}}}", "an image of 1 numbers, not 784");
        bad("{\"user_data\": {\"w\": {\"x\": [], \"y\": [1]}}}", "writer 'w' has 0 images but 1 labels");
        bad("{\"user_data\": {\"w\": {\"x\": [], \"y\": [62]}}}", "label 62: expected 0 to 61");
        bad("{\"user_data\": {\"w\": {\"x\": [[2]], \"y\": [0]}}}", "pixel 2: expected 0 to 1");
        bad("{\"user_data\": {\"w\": ", "EOF");
        let one = writer(&[3], 0.5);
        for (users, samples, reason) in [
            (vec!["w", "v"], vec![1, 1], "users lists writer 'v', who is not in user_data"),
            (vec![], vec![], "user_data has writer 'w', who is not in users"),
            (vec!["w"], vec![2], "num_samples says 2 for writer 'w', who has 1"),
            (vec!["w"], vec![], "num_samples has 0 numbers for 1 users"),
        ] {
            let json = serde_json::json!({"users": users, "user_data": {"w": one}, "num_samples": samples});
            bad(&json.to_string(), reason);
        }
        assert!(matches!(read(&dir.path().join("nothing")), Err(Error::Missing { .. })));
    }
}
