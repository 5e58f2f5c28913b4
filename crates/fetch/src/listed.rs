//! Checks that a folder has what the catalogue lists for a data set.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use fedelity_data::catalogue::CatalogueEntry;

/// Number of bytes of a file that are inspected.
const START: u64 = 1 << 10;
/// The message for an HTML page in place of a file.
pub(crate) const PAGE: &str = "is an HTML page";
const IMAGES: [&str; 3] = ["png", "jpg", "jpeg"];

/// The first thing that is missing or cannot be data, as text.
pub(crate) fn lack(entry: &CatalogueEntry, root: &Path) -> Option<String> {
    entry.files.iter().find_map(|name| match name.split_once("/<class>/") {
        Some((part, _)) => classes(root, part, entry.classes),
        None if root.join(name).is_dir() => classes(root, name, entry.classes),
        None => file(root, name),
    })
}

/// Why a file cannot be data, whatever it should contain.
pub(crate) fn unlike_data(path: &Path) -> io::Result<Option<&'static str>> {
    // Checked before opening: opening a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(Some("is not a file"));
    }
    let mut start = Vec::new();
    File::open(path)?.take(START).read_to_end(&mut start)?;
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start).trim_ascii_start().to_ascii_lowercase();
    Ok(if start.is_empty() {
        Some("is empty")
    } else if text.starts_with(b"<!doctype") || text.starts_with(b"<html") {
        Some(PAGE)
    } else {
        None
    })
}

fn file(root: &Path, name: &str) -> Option<String> {
    // Plain, or compressed as in EMNIST.
    let names = [name.to_string(), format!("{name}.gz"), format!("gzip/{name}.gz")];
    let Some(path) = names.iter().map(|name| root.join(name)).find(|path| path.exists()) else {
        return Some(format!("{name} is missing"));
    };
    match unlike_data(&path) {
        Ok(reason) => reason.map(|reason| format!("{name} {reason}")),
        Err(error) => Some(format!("{name} cannot be read: {error}")),
    }
}

/// As [`lack`], for a folder with one image folder per class.
fn classes(root: &Path, part: &str, classes: usize) -> Option<String> {
    let Ok(inside) = fs::read_dir(root.join(part)) else { return Some(format!("{part} is missing")) };
    let mut folders: Vec<_> = inside.flatten().filter(|entry| entry.path().is_dir()).collect();
    folders.retain(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    folders.sort_by_key(fs::DirEntry::file_name);
    if folders.len() < classes {
        return Some(format!("{part} has {} of {classes} classes", folders.len()));
    }
    let empty = folders.iter().find(|entry| !has_image(&entry.path()) && !has_image(&entry.path().join("images")))?;
    Some(format!("{part}/{} has no image", empty.file_name().to_string_lossy()))
}

fn has_image(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let end = path.extension().map(|end| end.to_string_lossy().to_lowercase());
        end.is_some_and(|end| IMAGES.contains(&end.as_str())) && fs::metadata(&path).is_ok_and(|about| about.len() > 0)
    })
}
