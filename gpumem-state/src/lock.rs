//! The lock of a folder: one process at a time saves to it.

use crate::error::Error;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// The lock file. It stays when the lock is released, and has nothing in it.
const LOCK: &str = ".lock";

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process inherits it until it executes another program.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Locks a folder, which exists.
    pub(crate) fn take(folder: &Path) -> Result<Lock, Error> {
        let path: PathBuf = folder.join(LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| Error::system(&path, "opened", &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(Error::file(
                folder,
                "is in use: another training saves its state there; end it, or save to another folder",
            )),
            Err(TryLockError::Error(error)) => Err(Error::system(&path, "locked", &error)),
        }
    }
}
