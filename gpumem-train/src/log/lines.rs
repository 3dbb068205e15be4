//! Files to which lines are appended, and whose last lines are removed when a training is resumed.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a line.
const MOST_LINE: u64 = 1 << 26;

/// A file of lines.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: Option<File>,
}

impl Lines {
    pub fn new(path: impl Into<PathBuf>) -> Lines {
        Lines { path: path.into(), file: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file. An existing one is renamed, as `log.1.jsonl` next to `log.jsonl`.
    pub fn start(&mut self) -> Result<()> {
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, &error))?;
        }
        if fs::metadata(&self.path).is_ok_and(|data| data.is_file() && data.len() > 0) {
            fs::rename(&self.path, self.free_name()).map_err(|error| Error::io(&self.path, &error))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        self.file = Some(file.map_err(|error| Error::io(&self.path, &error))?);
        Ok(())
    }

    fn free_name(&self) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let ending = self.path.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
        let names = (1u64..).map(|number| self.path.with_file_name(format!("{stem}.{number}{ending}")));
        names.into_iter().find(|path| !path.exists()).unwrap_or_default()
    }

    /// Opens the file to append to it, and removes all lines from the first one for which `is_kept` is false.
    ///
    /// `is_kept` gets the number of the line, from 0, and its text. A last line without a line end is removed too, since it was cut off.
    pub fn resume(&mut self, mut is_kept: impl FnMut(u64, &str) -> Result<bool>) -> Result<()> {
        if !self.path.exists() {
            return self.start();
        }
        let fail = |error: std::io::Error| Error::io(&self.path, &error);
        let file = OpenOptions::new().read(true).append(true).open(&self.path).map_err(fail)?;
        let mut reader = BufReader::new(&file);
        let (mut kept, mut line, mut number) = (0u64, Vec::new(), 0);
        loop {
            line.clear();
            let length = (&mut reader).take(MOST_LINE).read_until(b'\n', &mut line).map_err(fail)? as u64;
            if length == MOST_LINE && line.last() != Some(&b'\n') {
                let what = format!(
                    "line {} has more than {MOST_LINE} bytes, so this is no log; move the file away",
                    number + 1
                );
                return Err(Error::file(&self.path, what));
            }
            let Some((b'\n', text)) = line.split_last() else { break };
            let Ok(text) = std::str::from_utf8(text) else {
                let what = format!("line {} is no text, so this is no log; move the file away", number + 1);
                return Err(Error::file(&self.path, what));
            };
            if !is_kept(number, text)? {
                break;
            }
            kept += length;
            number += 1;
        }
        file.set_len(kept).map_err(fail)?;
        self.file = Some(file);
        Ok(())
    }

    /// Appends a line.
    pub fn write(&mut self, line: &str) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Err(Error::file(
                &self.path,
                "the log was not started; give it to a trainer, or call `begin` first",
            ));
        };
        file.write_all(format!("{line}\n").as_bytes()).map_err(|error| Error::io(&self.path, &error))
    }
}
