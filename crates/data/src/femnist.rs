//! Reader of LEAF's FEMNIST: JSON files of writers and their characters.
//!
//! A file has `users`, `num_samples` and `user_data`, which maps a writer to `x`, images of 784 numbers from 0 to 1,
//! and `y`, labels from 0 to 61. Files are streamed, so memory is limited to the images as bytes, plus a second copy of
//! one file's.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::dataset::{Dataset, NaturalKeys, Split};
use crate::emnist::{CHARACTERS, characters};
use crate::error::DataError;
use crate::files;
use crate::folder::measure;
use crate::partition::hold_out;
use crate::request::Request;

const PIXELS: usize = 28 * 28;
/// The share of each class used for testing if LEAF has not split the data: LEAF's own.
const TEST_FRACTION: f64 = 0.1;

/// Reads FEMNIST from `dir/femnist` or `dir`, or from `data` in one of them.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let files = |root: &Path, part: &str| json_files(&root.join(part)).unwrap_or_default();
    let is_split = |root: &Path| !files(root, "train").is_empty() && !files(root, "test").is_empty();
    let root = request.root(&["femnist", "femnist/data", "", "data"], |root| {
        let found = is_split(root) || !files(root, "all_data").is_empty();
        if found { Vec::new() } else { request.entry.files.iter().map(|name| name.to_string()).collect() }
    })?;
    let read = |part: &str| read_files(&json_files(&root.join(part))?);
    let (train, test) = if is_split(&root) {
        (read("train")?, read("test")?)
    } else {
        let all = read("all_data")?;
        let held = hold_out(&all.labels, TEST_FRACTION);
        all.divide(&held)
    };
    let normalisation = measure(&train, 1);
    Ok(request.dataset(&characters(CHARACTERS), train, test, normalisation))
}

fn json_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("read", folder))? {
        let path = entry.map_err(DataError::io("read", folder))?.path();
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

/// A LEAF file.
#[derive(Deserialize)]
struct LeafFile {
    users: Option<Vec<String>>,
    num_samples: Option<Vec<usize>>,
    user_data: Option<Writers>,
}

#[derive(Deserialize)]
struct Writer {
    #[serde(default)]
    x: Pixels,
    #[serde(default)]
    y: Vec<u16>,
}

/// Writers in file order.
#[derive(Default)]
struct Writers(Vec<(String, Writer)>);

/// Consecutive images, as bytes.
#[derive(Default)]
struct Pixels(Vec<u8>);

fn read_files(paths: &[PathBuf]) -> Result<Split, DataError> {
    let (mut pixels, mut labels, mut keys) = (Vec::new(), Vec::new(), NaturalKeys::default());
    for path in paths {
        let (file, _) = files::open(path)?;
        let unfit = |line: usize, reason: String| {
            DataError::unusable(path, (line > 0).then_some(line as u64), format!("not LEAF's FEMNIST: {reason}"))
        };
        let read: LeafFile = serde_json::from_reader(BufReader::with_capacity(1 << 16, file))
            .map_err(|error| unfit(error.line(), error.to_string()))?;
        let writers = read.writers().map_err(|reason| unfit(0, reason))?;
        for (name, writer) in writers {
            pixels.extend(writer.x.0);
            labels.extend(writer.y);
            keys.of.resize(labels.len(), keys.names.len() as u32);
            keys.names.push(name);
        }
    }
    let mut split = Split::images(pixels, labels);
    split.keys = Some(keys);
    Ok(split)
}

impl LeafFile {
    /// The writers, if they match the file's list, with the stated numbers of images.
    fn writers(self) -> Result<Vec<(String, Writer)>, String> {
        let Writers(writers) = self.user_data.ok_or("user_data is missing")?;
        let Some(users) = self.users else { return Ok(writers) };
        let counts: HashMap<&str, usize> = writers.iter().map(|(name, own)| (name.as_str(), own.y.len())).collect();
        if let Some(name) = users.iter().find(|name| !counts.contains_key(name.as_str())) {
            return Err(format!("users lists writer '{name}', who is not in user_data"));
        }
        let listed: HashSet<&String> = users.iter().collect();
        if let Some((name, _)) = writers.iter().find(|(name, _)| !listed.contains(name)) {
            return Err(format!("user_data has writer '{name}', who is not in users"));
        }
        let Some(samples) = self.num_samples else { return Ok(writers) };
        if samples.len() != users.len() {
            return Err(format!("num_samples has {} entries for {} users", samples.len(), users.len()));
        }
        match users.iter().zip(samples).find(|(name, said)| counts[name.as_str()] != *said) {
            Some((name, said)) => {
                Err(format!("num_samples says {said} for writer '{name}', who has {}", counts[name.as_str()]))
            }
            None => Ok(writers),
        }
    }
}

impl<'de> Deserialize<'de> for Writers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Writers {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of writers")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, writer)) = map.next_entry::<String, Writer>()? {
            if let Some(label) = writer.y.iter().find(|&&label| usize::from(label) >= CHARACTERS.len()) {
                return Err(A::Error::custom(format!("label {label}: expected 0 to {}", CHARACTERS.len() - 1)));
            }
            let (x, y) = (writer.x.0.len() / PIXELS, writer.y.len());
            if x != y {
                return Err(A::Error::custom(format!("writer '{name}' has {x} images but {y} labels")));
            }
            self.0.push((name, writer));
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Pixels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Self::default())
    }
}

impl<'de> Visitor<'de> for Pixels {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of images")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut images: A) -> Result<Self, A::Error> {
        while let Some(image) = images.next_element::<Vec<f32>>()? {
            if let Some(number) = image.iter().find(|number| !(0.0..=1.0).contains(*number)) {
                return Err(A::Error::custom(format!("pixel {number}: expected 0 to 1")));
            }
            if image.len() != PIXELS {
                return Err(A::Error::custom(format!("an image of {} numbers, not {PIXELS}", image.len())));
            }
            self.0.extend(image.into_iter().map(|number| (number * 255.0).round() as u8));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::load;

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
        let set = load("femnist", Some(dir.path())).unwrap();
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
        let set = load("femnist", Some(dir.path())).unwrap();
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
            let text = load("femnist", Some(dir.path())).unwrap_err().to_string();
            assert!(text.contains("a.json:") && text.contains(reason), "{text}");
        };
        bad("{\"users\": []}", "user_data is missing");
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
            (vec!["w"], vec![], "num_samples has 0 entries for 1 users"),
        ] {
            let json = serde_json::json!({"users": users, "user_data": {"w": one}, "num_samples": samples});
            bad(&json.to_string(), reason);
        }
        assert!(matches!(load("femnist", Some(&dir.path().join("nothing"))), Err(DataError::Missing { .. })));
    }
}
