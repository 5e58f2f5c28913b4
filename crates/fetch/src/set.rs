//! A whole data set: its files downloaded, checked, unpacked and moved into place.

use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use fedelity_data::catalogue::CatalogueEntry;
use fedelity_data::download::{Checksum, Remote, RemoteForm};
use fedelity_data::quoted;

use crate::lock::Lock;
use crate::transfer::{Event, Patience, Transfer};
use crate::{FetchError, Limits, check, listed, unpack};

/// The outcome of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The data set needs no files.
    PartOfTheProgram,
    /// It was already there and, as far as can be checked, is the published one.
    WasThere(PathBuf),
    /// It was downloaded.
    New(PathBuf),
}

/// Downloads a data set into its folder in `dir`, from the first official address that works. `mirror` replaces these:
/// the address of a folder on a server, or a local folder.
pub fn fetch(
    entry: &CatalogueEntry,
    dir: &Path,
    mirror: Option<&str>,
    patience: Patience,
    event: &mut dyn FnMut(Event),
) -> Result<Fetched, FetchError> {
    let Some(folder) = entry.folder else { return Ok(Fetched::PartOfTheProgram) };
    let home = dir.join(folder);
    if entry.download.by_hand.is_some() {
        return Err(FetchError::ByHand { name: entry.name, how: by_hand(entry, dir) });
    }
    let set = Set { entry, dir, home: &home, mirror, patience };
    // A read-only folder is fine if nothing is missing.
    if !set.is_underway() && set.is_there(event)? {
        return Ok(Fetched::WasThere(home));
    }
    fs::create_dir_all(dir).map_err(FetchError::io("create", dir))?;
    let _lock = Lock::take(&set.hidden("lock"), entry.name, event)?;
    // We hold the lock, so whoever started to unpack was killed.
    drop(Aside(set.hidden("unpack")));
    if set.is_there(event)? {
        entry.download.files.iter().try_for_each(|remote| remove(&set.part(remote)))?;
        return Ok(Fetched::WasThere(home));
    }
    if !set.is_plain() && home.exists() {
        let missing = listed::lack(entry, &home).unwrap_or_default();
        event(Event::Incomplete { path: home.clone(), missing });
    }
    let mut new = false;
    for remote in entry.download.files {
        new |= set.get(remote, event)?;
    }
    Ok(if new { Fetched::New(home) } else { Fetched::WasThere(home) })
}

/// Instructions for use without a network: which files to get, and where to put them.
pub fn by_hand(entry: &CatalogueEntry, dir: &Path) -> String {
    let Some(folder) = entry.folder else { return format!("{} is built into the program", entry.name) };
    let home = dir.join(folder);
    if let Some(how) = entry.download.by_hand {
        return format!("{how}: {}", home.display());
    }
    let mut lines = vec!["If this machine has no network access, download on another machine".to_string()];
    for remote in entry.download.files {
        for (start, address) in ["  "].into_iter().chain(iter::repeat("  or ")).zip(addresses(entry, remote)) {
            let name = if address.ends_with(remote.name) { String::new() } else { format!(" as {}", remote.name) };
            lines.push(format!("{start}{address}{name}"));
        }
    }
    lines.push("and copy it into a folder FOLDER here. Then verify and install it:".to_string());
    lines.push(format!("  fedelity data fetch {} --mirror FOLDER --data-dir {}", entry.name, quoted(dir)));
    lines.push(format!("Or copy the files themselves into {}:", home.display()));
    lines.push(format!("  {}", entry.files.join(", ")));
    lines.join("\n")
}

/// A data set being fetched.
struct Set<'a> {
    entry: &'a CatalogueEntry,
    dir: &'a Path,
    home: &'a Path,
    mirror: Option<&'a str>,
    patience: Patience,
}

impl Set<'_> {
    /// Whether the files are kept as downloaded.
    fn is_plain(&self) -> bool {
        self.entry.download.files.iter().all(|remote| remote.form == RemoteForm::File)
    }

    /// Whether the data set is there and, as far as can be checked, correct. Anything else in its place is an error.
    fn is_there(&self, event: &mut dyn FnMut(Event)) -> Result<bool, FetchError> {
        if self.is_plain() {
            let files = self.entry.download.files;
            if !files.iter().all(|remote| self.home.join(remote.name).exists()) {
                return Ok(false);
            }
            return files.iter().try_for_each(|remote| self.check_kept(remote, event)).map(|()| true);
        }
        match listed::lack(self.entry, self.home) {
            None => self.check_content(self.home, event).map_err(|error| in_the_way(self.home, error)).map(|()| true),
            Some(_) if is_free(self.home) => Ok(false),
            Some(reason) => Err(FetchError::InTheWay { path: self.home.to_path_buf(), reason }),
        }
    }

    /// Whether a process is fetching it, or was killed while doing so.
    fn is_underway(&self) -> bool {
        let parts = self.entry.download.files.iter().map(|remote| self.part(remote));
        let lock = cfg!(unix).then(|| self.hidden("lock"));
        parts.chain([self.hidden("unpack")]).chain(lock).any(|path| path.exists())
    }

    /// A temporary path next to the data.
    fn hidden(&self, end: &str) -> PathBuf {
        self.dir.join(format!(".{}.{end}", self.entry.name))
    }

    /// The partial download of a file. Different data sets have files with the same name.
    fn part(&self, remote: &Remote) -> PathBuf {
        self.dir.join(format!("{}-{}.part", self.entry.name, remote.name))
    }

    fn check_kept(&self, remote: &Remote, event: &mut dyn FnMut(Event)) -> Result<(), FetchError> {
        let place = self.home.join(remote.name);
        self.check(remote, &place, event).map_err(|error| in_the_way(&place, error))
    }

    /// The addresses of a file, in the order they are tried.
    fn addresses(&self, remote: &Remote) -> Vec<String> {
        match self.mirror {
            Some(mirror) => vec![format!("{}/{}", mirror.trim_end_matches('/'), remote.name)],
            None => addresses(self.entry, remote),
        }
    }

    /// Gets one file; false if it was already there.
    fn get(&self, remote: &Remote, event: &mut dyn FnMut(Event)) -> Result<bool, FetchError> {
        let place = self.home.join(remote.name);
        if remote.form == RemoteForm::File && place.exists() {
            return self.check_kept(remote, event).map(|()| false);
        }
        let part = self.part(remote);
        let mut addresses = self.addresses(remote).into_iter().peekable();
        while let Some(url) = addresses.next() {
            match (self.get_from(url, remote, &part, &place, event), addresses.peek()) {
                (Err(error), Some(next)) if error.is_of_the_server() => {
                    event(Event::Elsewhere { reason: error.to_string(), url: next.clone() });
                }
                (kept, _) => return kept.map(|()| true),
            }
        }
        Err(FetchError::ByHand { name: self.entry.name, how: by_hand(self.entry, self.dir) })
    }

    /// Gets one file from one address, and moves it into place.
    fn get_from(
        &self,
        url: String,
        remote: &Remote,
        part: &Path,
        place: &Path,
        event: &mut dyn FnMut(Event),
    ) -> Result<(), FetchError> {
        let is_page = listed::unlike_data(part).is_ok_and(|reason| reason == Some(listed::PAGE));
        if is_page || remote.form == RemoteForm::File && !self.is_checked(remote) {
            // A page is not part of a file, and without a checksum mismatched parts would go unnoticed.
            remove(part)?;
        }
        let (name, expected) = (remote.name, remote.bytes);
        let most = remote.most_bytes().unwrap_or(self.patience.most_bytes);
        Transfer { url, name, part: part.to_path_buf(), expected, most, patience: self.patience }.run(event)?;
        let kept = match remote.form {
            RemoteForm::File => self.check(remote, part, event).and_then(|()| {
                fs::create_dir_all(self.home).map_err(FetchError::io("create", self.home))?;
                fs::rename(part, place).map_err(FetchError::io("move into place", place))
            }),
            RemoteForm::TarGz(inside) | RemoteForm::Zip(inside) => {
                self.check(remote, part, event).and_then(|()| self.unpack(remote, part, inside, event))
            }
        };
        match kept {
            Ok(()) if remote.form != RemoteForm::File => remove(part)?,
            // A wrong file must not be resumed.
            Err(FetchError::Checksum { .. } | FetchError::NotData { .. } | FetchError::Archive { .. }) => remove(part)?,
            _ => {}
        }
        kept
    }

    /// Whether a wrong file would be detected.
    fn is_checked(&self, remote: &Remote) -> bool {
        remote.checksum.is_some() || self.content(remote.name).is_some()
    }

    fn content(&self, name: &str) -> Option<&'static str> {
        self.entry.download.content.iter().find(|(known, _)| *known == name).map(|(_, sha256)| *sha256)
    }

    /// Checks a downloaded file.
    fn check(&self, remote: &Remote, file: &Path, event: &mut dyn FnMut(Event)) -> Result<(), FetchError> {
        event(Event::Checking { name: remote.name.to_string() });
        if let Some(expected) = remote.checksum {
            let found = check::alike(file, expected).map_err(FetchError::io("read", file))?;
            compare(remote.name, expected, found)?;
        }
        if !self.is_checked(remote)
            && let Some(reason) = listed::unlike_data(file).map_err(FetchError::io("read", file))?
        {
            return Err(FetchError::NotData { what: remote.name.to_string(), reason });
        }
        let content = self.content(remote.name).filter(|_| remote.form == RemoteForm::File);
        if let Some(expected) = content {
            return check_content(remote.name, expected, file, remote.inside);
        }
        // The content of an archive is checked after unpacking.
        let later = remote.form != RemoteForm::File && !self.entry.download.content.is_empty();
        if remote.checksum.is_none() && !later {
            event(Event::Unchecked { name: remote.name.to_string() });
        }
        Ok(())
    }

    /// Unpacks an archive into a temporary folder, checks its contents, and moves it into place.
    fn unpack(
        &self,
        remote: &Remote,
        archive: &Path,
        inside: Option<&str>,
        event: &mut dyn FnMut(Event),
    ) -> Result<(), FetchError> {
        event(Event::Unpacking { name: remote.name.to_string() });
        let aside = Aside(self.hidden("unpack"));
        fs::create_dir(&aside.0).map_err(FetchError::io("create", &aside.0))?;
        match remote.form {
            RemoteForm::Zip(_) => unpack::zip(archive, &aside.0, Limits::default())?,
            _ => unpack::tar_gz(archive, &aside.0, Limits::default())?,
        }
        let root = inside.map_or_else(|| aside.0.clone(), |inside| aside.0.join(inside));
        if !root.is_dir() {
            let reason = format!("the archive has no folder '{}'", inside.unwrap_or_default());
            return Err(FetchError::Archive { path: archive.to_path_buf(), reason });
        }
        if let Some(reason) = listed::lack(self.entry, &root) {
            return Err(FetchError::Archive { path: archive.to_path_buf(), reason });
        }
        self.check_content(&root, event)?;
        if let Some(parent) = self.home.parent() {
            fs::create_dir_all(parent).map_err(FetchError::io("create", parent))?;
        }
        if self.home.exists() {
            // Removed only if empty. Not every system can replace a folder by renaming.
            fs::remove_dir(self.home).map_err(FetchError::io("replace", self.home))?;
        }
        fs::rename(&root, self.home).map_err(FetchError::io("move into place", self.home))
    }

    fn check_content(&self, root: &Path, event: &mut dyn FnMut(Event)) -> Result<(), FetchError> {
        for (name, expected) in self.entry.download.content {
            event(Event::Checking { name: name.to_string() });
            check_content(name, expected, &root.join(name), None)?;
        }
        Ok(())
    }
}

/// Checks the content of a file, of which no more than is expected is read.
fn check_content(name: &str, expected: &'static str, file: &Path, inside: Option<u64>) -> Result<(), FetchError> {
    let found = check::content(file, name, inside).unwrap_or_else(|error| format!("none, {error}"));
    compare(name, Checksum::Sha256(expected), found)
}

/// A temporary folder next to the data, removed when dropped.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // It may have been moved into place.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The official addresses of a file.
fn addresses(entry: &CatalogueEntry, remote: &Remote) -> Vec<String> {
    let whole = |home: &&str| if home.ends_with('/') { format!("{home}{}", remote.name) } else { home.to_string() };
    entry.download.mirrors.iter().map(whole).collect()
}

fn compare(what: &str, expected: Checksum, found: String) -> Result<(), FetchError> {
    if found == expected.hex() {
        return Ok(());
    }
    let (what, expected, kind) = (what.to_string(), expected.hex().to_string(), expected.kind());
    Err(FetchError::Checksum { what, kind, expected, found })
}

fn in_the_way(path: &Path, error: FetchError) -> FetchError {
    let reason = match error {
        FetchError::Checksum { what, kind, expected, found } => format!("{what} has {kind} {found}, not {expected}"),
        FetchError::NotData { what, reason } => format!("{what} {reason}"),
        other => return other,
    };
    FetchError::InTheWay { path: path.to_path_buf(), reason }
}

/// Whether a folder can be moved there: nothing, or an empty folder, is in the way.
fn is_free(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(about) => about.is_dir() && fs::read_dir(path).is_ok_and(|mut inside| inside.next().is_none()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn remove(path: &Path) -> Result<(), FetchError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(FetchError::io("remove", path)(source)),
        _ => Ok(()),
    }
}
