//! The folder of a training: its states, and the marks that name some of them.

use crate::error::Error;
use crate::format::{NUMBERS, TENSORS};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The mark of the newest state.
pub(crate) const LATEST: &str = "latest";
/// The start of the name of a state.
const STEP: &str = "step-";
/// The start of the name of a folder that is being written or removed.
pub(crate) const TEMPORARY: &str = ".tmp-";
/// The longest mark that is read.
const LONGEST_MARK: u64 = 256;

/// The name of a state: its steps, and the number of earlier states with as many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) steps: u64,
    pub(crate) again: u32,
}

impl Name {
    fn parse(name: &OsStr) -> Option<Name> {
        let text = name.to_str()?;
        let (steps, again) = match text.strip_prefix(STEP)?.split_once('-') {
            Some((steps, again)) => (steps, again.parse().ok()?),
            None => (text.strip_prefix(STEP)?, 0),
        };
        let name = Name { steps: steps.parse().ok()?, again };
        // Each state has one name: `step-7` without leading zeros is not one.
        (name.text() == text).then_some(name)
    }

    pub(crate) fn text(self) -> String {
        match self {
            Name { steps, again: 0 } => format!("{STEP}{steps:08}"),
            Name { steps, again } => format!("{STEP}{steps:08}-{again}"),
        }
    }
}

/// Returns the states of a folder, the oldest first.
pub(crate) fn states(folder: &Path) -> Result<Vec<Name>, Error> {
    let entries = fs::read_dir(folder).map_err(|error| Error::system(folder, "read", &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::system(folder, "read", &error))?;
        if let Some(name) = Name::parse(&entry.file_name()).filter(|_| is_state(&entry.path())) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// True if a folder has the files of a state.
pub(crate) fn is_state(folder: &Path) -> bool {
    folder.join(NUMBERS).is_file() && folder.join(TENSORS).is_file()
}

/// The longest name of a mark.
pub(crate) const LONGEST_NAME: usize = 64;

/// True if a text may be a mark: a valid file name on all systems, and not the name of a state.
pub(crate) fn is_mark(text: &str) -> bool {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_simple) && !text.starts_with(STEP)
}

/// Returns the state that a mark names. `None` if there is no such mark, or no such state any more.
pub(crate) fn marked(folder: &Path, mark: &str) -> Result<Option<Name>, Error> {
    let path = folder.join(mark);
    let text = match read_at_most(&path, LONGEST_MARK) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::system(&path, "read", &error)),
    };
    let name = std::str::from_utf8(&text).ok().and_then(|text| Name::parse(OsStr::new(text.trim_end())));
    Ok(name.filter(|name| is_state(&folder.join(name.text()))))
}

/// Returns the state that `latest` names, or the one with the most steps if that does not exist. `None` if there is none.
pub(crate) fn newest(folder: &Path) -> Result<Option<Name>, Error> {
    match marked(folder, LATEST)? {
        Some(name) => Ok(Some(name)),
        None => Ok(states(folder)?.pop()),
    }
}

/// Returns the folder of the newest state in `folder`, or of the state that `folder` is. `None` if there is none.
pub(crate) fn find(folder: &Path) -> Result<Option<PathBuf>, Error> {
    if is_state(folder) {
        return Ok(Some(folder.to_path_buf()));
    }
    Ok(newest(folder)?.map(|name| path(folder, name)))
}

/// Returns the marks of a folder with the states that they name.
pub(crate) fn marks(folder: &Path) -> Result<Vec<Name>, Error> {
    let entries = fs::read_dir(folder).map_err(|error| Error::system(folder, "read", &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::system(folder, "read", &error))?;
        let is_small = entry.metadata().is_ok_and(|about| about.is_file() && about.len() <= LONGEST_MARK);
        if let Some(mark) = entry.file_name().to_str().filter(|mark| is_small && !mark.starts_with('.')) {
            names.extend(marked(folder, mark)?);
        }
    }
    Ok(names)
}

/// Sets a mark to a state, atomically.
pub(crate) fn mark(folder: &Path, mark: &str, name: Name) -> Result<(), Error> {
    let path = folder.join(mark);
    let write = || -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
        writeln!(file, "{}", name.text())?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        sync(folder)
    };
    write().map_err(|error| Error::system(&path, "written", &error))
}

/// Flushes the entries of a folder to the disk.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    // A folder cannot be opened on Windows, where a rename is written through.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Removes the folder of a state. It is renamed first, so that a partly removed folder is no state.
pub(crate) fn remove(folder: &Path, name: Name) -> io::Result<()> {
    let (from, to) = (folder.join(name.text()), folder.join(format!("{TEMPORARY}{}", name.text())));
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    fs::rename(&from, &to)?;
    fs::remove_dir_all(&to)
}

/// Removes temporary folders of a process that ended while it was saving.
pub(crate) fn clean(folder: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(folder).map_err(|error| Error::system(folder, "read", &error))?;
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY)) {
            let path = entry.path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|error| Error::system(&path, "removed", &error))?;
        }
    }
    Ok(())
}

/// Removes all states except those with a mark and the last `keep` ones up to `newest`.
///
/// States with more steps than `newest` belong to an abandoned training; this one was resumed from an earlier state.
pub(crate) fn prune(folder: &Path, keep: usize, newest: Name) -> Result<(), Error> {
    let marked = marks(folder)?;
    let (after, mut before): (Vec<Name>, Vec<Name>) = states(folder)?.into_iter().partition(|name| *name > newest);
    before.truncate(before.len().saturating_sub(keep.max(1)));
    for name in after.into_iter().chain(before).filter(|name| !marked.contains(name)) {
        remove(folder, name).map_err(|error| Error::system(&folder.join(name.text()), "removed", &error))?;
    }
    Ok(())
}

/// Reads a file of at most `most` bytes.
pub(crate) fn read_at_most(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes, which no file of a state has");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

/// Returns the path of a state.
pub(crate) fn path(folder: &Path, name: Name) -> PathBuf {
    folder.join(name.text())
}
