//! A whole data set: its files downloaded, checked, unpacked and moved into place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fedelity_data::catalogue::Entry;
use fedelity_data::download::{Form, Remote};

use crate::transfer::{Event, Patience, Transfer};
use crate::{Error, Limits, check, unpack};

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The data set needs no files.
    PartOfTheProgram,
    /// It was there, and is what was published as far as that is known.
    WasThere(PathBuf),
    /// It is there now.
    New(PathBuf),
}

/// Downloads a data set into its folder below `dir`. `mirror` takes the place of the official address: the address of a
/// folder on a server, or a folder of this machine.
pub fn fetch(
    entry: &Entry,
    dir: &Path,
    mirror: Option<&str>,
    patience: Patience,
    event: &mut dyn FnMut(Event),
) -> Result<Fetched, Error> {
    let Some(folder) = entry.folder else { return Ok(Fetched::PartOfTheProgram) };
    let home = dir.join(folder);
    if let Some(how) = entry.download.by_hand {
        return Err(Error::ByHand { name: entry.name, how });
    }
    let set = Set { entry, dir, home: &home, mirror: mirror.unwrap_or(entry.download.base), patience };
    let single = entry.download.files.iter().all(|remote| remote.form == Form::File);
    if home.exists() && !single {
        set.check_content(&home, event).map_err(|error| in_the_way(&home, error))?;
        return Ok(Fetched::WasThere(home));
    }
    fs::create_dir_all(dir).map_err(|source| io_error("create", dir, source))?;
    let mut new = false;
    for remote in entry.download.files {
        new |= set.get(remote, event)?;
    }
    Ok(if new { Fetched::New(home) } else { Fetched::WasThere(home) })
}

/// What to do without a network: which files to get, and where to put them.
pub fn by_hand(entry: &Entry, dir: &Path) -> String {
    let Some(folder) = entry.folder else { return format!("{} is part of the program", entry.name) };
    let home = dir.join(folder);
    if let Some(how) = entry.download.by_hand {
        return format!("{how}: {}", home.display());
    }
    let mut lines = vec!["Without a network, on a machine that has one, download".to_string()];
    lines.extend(entry.download.files.iter().map(|remote| format!("  {}{}", entry.download.base, remote.name)));
    lines.push("and bring it here in a folder FOLDER; then this checks it and puts it into place:".to_string());
    lines.push(format!("  fedelity data fetch {} --mirror FOLDER", entry.name));
    lines.push(format!("Or put the files themselves into {}:", home.display()));
    lines.push(format!("  {}", entry.files.join(", ")));
    lines.join("\n")
}

/// A data set on its way.
struct Set<'a> {
    entry: &'a Entry,
    dir: &'a Path,
    home: &'a Path,
    mirror: &'a str,
    patience: Patience,
}

impl Set<'_> {
    /// Gets one file; false if it was there.
    fn get(&self, remote: &Remote, event: &mut dyn FnMut(Event)) -> Result<bool, Error> {
        let place = self.home.join(remote.name);
        if remote.form == Form::File && place.exists() {
            self.check(remote, &place, &place, event).map_err(|error| in_the_way(&place, error))?;
            return Ok(false);
        }
        // Files of different sets have the same names.
        let part = self.dir.join(format!("{}-{}.part", self.entry.name, remote.name));
        if remote.form == Form::File && !self.is_checked(remote) {
            // Nothing would tell that the parts do not belong together.
            remove(&part)?;
        }
        let url = format!("{}/{}", self.mirror.trim_end_matches('/'), remote.name);
        let (name, expected) = (remote.name, remote.bytes);
        Transfer { url, name, part: part.clone(), expected, patience: self.patience }.run(event)?;
        let kept = match remote.form {
            Form::File => self.check(remote, &part, &place, event).and_then(|()| {
                fs::create_dir_all(self.home).map_err(|source| io_error("create", self.home, source))?;
                fs::rename(&part, &place).map_err(|source| io_error("move into place", &place, source))
            }),
            Form::TarGz(inside) | Form::Zip(inside) => {
                self.check(remote, &part, &part, event).and_then(|()| self.unpack(remote, &part, inside, event))
            }
        };
        match kept {
            Ok(()) if remote.form != Form::File => remove(&part)?,
            // A wrong file must not be gone on with.
            Err(Error::Checksum { .. } | Error::Archive { .. }) => remove(&part)?,
            _ => {}
        }
        kept.map(|()| true)
    }

    /// Whether anything tells a right file from a wrong one.
    fn is_checked(&self, remote: &Remote) -> bool {
        remote.sha256.is_some() || self.content(remote.name).is_some()
    }

    fn content(&self, name: &str) -> Option<&'static str> {
        self.entry.download.content.iter().find(|(known, _)| *known == name).map(|(_, sha256)| *sha256)
    }

    /// Checks a downloaded file that is, or will be, at `place`.
    fn check(&self, remote: &Remote, file: &Path, place: &Path, event: &mut dyn FnMut(Event)) -> Result<(), Error> {
        event(Event::Checking { name: remote.name.to_string() });
        if let Some(expected) = remote.sha256 {
            let found = check::file(file).map_err(|source| io_error("read", file, source))?;
            compare(remote.name, expected, found)?;
        }
        if remote.form != Form::File {
            if remote.sha256.is_none() && self.entry.download.content.is_empty() {
                event(Event::Unchecked { name: remote.name.to_string() });
            }
            return Ok(());
        }
        match self.content(remote.name) {
            Some(expected) => {
                // The name says whether it is compressed, and a part file has another.
                let zipped = place.extension().is_some_and(|end| end == "gz");
                let found = if zipped { check::unzipped(file) } else { check::file(file) };
                let found = found.unwrap_or_else(|error| format!("none, {error}"));
                compare(remote.name, expected, found)
            }
            None => {
                if remote.sha256.is_none() {
                    event(Event::Unchecked { name: remote.name.to_string() });
                }
                Ok(())
            }
        }
    }

    /// Unpacks an archive aside, checks what is in it, and moves it into place.
    fn unpack(
        &self,
        remote: &Remote,
        archive: &Path,
        inside: Option<&str>,
        event: &mut dyn FnMut(Event),
    ) -> Result<(), Error> {
        event(Event::Unpacking { name: remote.name.to_string() });
        let aside = Aside::new(self.dir, self.entry.name)?;
        match remote.form {
            Form::Zip(_) => unpack::zip(archive, &aside.0, Limits::default())?,
            _ => unpack::tar_gz(archive, &aside.0, Limits::default())?,
        }
        let root = inside.map_or_else(|| aside.0.clone(), |inside| aside.0.join(inside));
        if !root.is_dir() {
            let reason = format!("there is no folder '{}' in it", inside.unwrap_or_default());
            return Err(Error::Archive { path: archive.to_path_buf(), reason });
        }
        self.check_content(&root, event)?;
        if let Some(parent) = self.home.parent() {
            fs::create_dir_all(parent).map_err(|source| io_error("create", parent, source))?;
        }
        fs::rename(&root, self.home).map_err(|source| io_error("move into place", self.home, source))
    }

    fn check_content(&self, root: &Path, event: &mut dyn FnMut(Event)) -> Result<(), Error> {
        for (name, expected) in self.entry.download.content {
            event(Event::Checking { name: name.to_string() });
            let found = check::content(&root.join(name)).unwrap_or_else(|error| format!("none, {error}"));
            compare(name, expected, found)?;
        }
        Ok(())
    }
}

/// A folder beside the data that is removed in the end, whatever happens.
struct Aside(PathBuf);

impl Aside {
    fn new(dir: &Path, name: &str) -> Result<Self, Error> {
        let path = dir.join(format!(".{name}-{}.unpack", std::process::id()));
        // What a process of the same number left behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).map_err(|source| io_error("create", &path, source))?;
        Ok(Self(path))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // It may have been moved into place.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn compare(what: &str, expected: &str, found: String) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Checksum { what: what.to_string(), expected: expected.to_string(), found })
}

fn in_the_way(path: &Path, error: Error) -> Error {
    match error {
        Error::Checksum { what, expected, found } => {
            let reason = format!("{what} has SHA-256 {found}, not {expected}");
            Error::InTheWay { path: path.to_path_buf(), reason }
        }
        other => other,
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path, source)),
        _ => Ok(()),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, source, path: path.to_path_buf() }
}
