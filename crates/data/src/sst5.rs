//! Reader of SST-5: sentences as bracketed trees, in which every node has a label from 0 to 4.
//!
//! The label of a sentence is that of its root; its words are the leaves.

use std::path::Path;

use crate::dataset::{Dataset, Normalisation, Split};
use crate::error::DataError;
use crate::files::{self, utf8};
use crate::request::Request;
use crate::skipped::Skipped;

const CLASSES: [&str; 5] = ["very negative", "negative", "neutral", "positive", "very positive"];

/// Reads SST-5 from `dir/sst5/trees` or `dir`. Unusable lines are rejected or skipped, depending on `skipped`.
pub(crate) fn read(request: &mut Request<'_>) -> Result<Dataset, DataError> {
    let paths = request.files(|name| vec![name.to_string()])?;
    let (train, test) = (read_split(&paths[0], request.skipped)?, read_split(&paths[1], request.skipped)?);
    Ok(request.dataset(&CLASSES, train, test, Normalisation::default()))
}

fn read_split(path: &Path, skipped: &mut Skipped) -> Result<Split, DataError> {
    let mut rows = Vec::new();
    files::lines(path, |line, text| {
        rows.extend(skipped.keep(path, line, utf8(text).and_then(tree))?);
        Ok(true)
    })?;
    Ok(Split::texts(rows))
}

/// The label of the root and the words of the leaves.
fn tree(text: &str) -> Result<(u16, String), String> {
    let (mut depth, mut root, mut words) = (0usize, None, Vec::new());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        match next {
            '(' => {
                if depth == 0 && root.is_some() {
                    return Err("two trees in one line".to_string());
                }
                depth += 1;
                let end = rest[1..].find([' ', '(', ')']).map_or(rest.len(), |at| at + 1);
                let label = rest[1..end].parse::<u16>().ok().filter(|&label| usize::from(label) < CLASSES.len());
                let label = label.ok_or_else(|| format!("label '{}': expected 0 to 4", &rest[1..end]))?;
                root.get_or_insert(label);
                rest = &rest[end..];
            }
            ')' => {
                depth = depth.checked_sub(1).ok_or("there is one closing bracket too many")?;
                rest = &rest[1..];
            }
            ' ' => rest = &rest[1..],
            _ => {
                let end = rest.find([' ', '(', ')']).unwrap_or(rest.len());
                if depth == 0 {
                    return Err(format!("'{}' is outside the tree", &rest[..end]));
                }
                words.push(match &rest[..end] {
                    "-LRB-" => "(".to_string(),
                    "-RRB-" => ")".to_string(),
                    word => word.replace("\\/", "/").replace("\\*", "*"),
                });
                rest = &rest[end..];
            }
        }
    }
    match root {
        Some(label) if depth == 0 && !words.is_empty() => Ok((label, words.join(" "))),
        Some(_) if depth > 0 => Err(format!("{depth} brackets are not closed")),
        _ => Err("the tree has no words".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{SetName, load};
    use std::fs;

    #[test]
    fn trees_give_words_and_the_label_of_the_root() {
        let text = "(3 (2 It) (4 (2 's) (3 (2 -LRB-) (2 and\\/or) (2 -RRB-))))";
        assert_eq!(tree(text).unwrap(), (3, "It 's ( and/or )".to_string()));
        for (text, reason) in [
            ("(5 (2 x))", "label '5': expected 0 to 4"),
            ("(3 (2 x)", "1 brackets are not closed"),
            ("(3 (2 x)))", "there is one closing bracket too many"),
            ("(3 (2 x)) (1 y)", "two trees in one line"),
            ("x", "'x' is outside the tree"),
            ("(3 (2 ))", "the tree has no words"),
        ] {
            assert_eq!(tree(text).unwrap_err(), reason);
        }
    }

    #[test]
    fn files_and_lines() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sst5/trees");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("train.txt"), "(0 (1 bad) (2 film))\n(4 good)\n").unwrap();
        fs::write(folder.join("test.txt"), "(2 so)\n").unwrap();
        let strict = || load("sst5", Some(dir.path()));
        let set = strict().unwrap();
        assert_eq!((set.train.labels.clone(), set.test.labels.clone()), (vec![0, 4], vec![2]));
        fs::write(folder.join("test.txt"), "(2 so)\n(9 so)\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.txt:2: label '9': expected 0 to 4; --skip"));
        let mut lax = Skipped::new(true);
        assert_eq!(
            (SetName::Sst5.entry().load(Some(dir.path()), None, &mut lax).unwrap().test.len(), lax.count),
            (1, 1)
        );
        fs::write(folder.join("test.txt"), b"(2 \xff)\n").unwrap();
        assert!(strict().unwrap_err().to_string().contains("test.txt:1: invalid UTF-8 at byte 3 of the line; --skip"));
    }
}
