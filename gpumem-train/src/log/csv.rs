//! A log of comma-separated values.

use super::lines::Lines;
use super::{Begin, Entry, Logger};
use crate::error::{Error, Result};
use std::fmt::Write;
use std::path::PathBuf;

/// A log with a row for each step that is logged and for each evaluation.
///
/// Columns are `step`, `epoch`, `seconds`, and one for each value. A missing value is an empty field; tables are left out. A training that
/// starts anew keeps an earlier file under another name, as `log.1.csv`.
#[derive(Debug)]
pub struct Csv {
    lines: Lines,
    columns: Vec<String>,
    extra: Vec<String>,
}

impl Csv {
    /// Returns a log in this file, which is opened when the training starts.
    pub fn new(path: impl Into<PathBuf>) -> Csv {
        Csv { lines: Lines::new(path), columns: Vec::new(), extra: Vec::new() }
    }

    /// Adds a column for a value that a callback logs.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>) -> Csv {
        self.extra.push(name.into());
        self
    }
}

/// Returns a name as a field: in quotes if it has a comma, a quote or an end of line.
fn field(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.into() }
}

impl Logger for Csv {
    fn begin(&mut self, begin: &Begin<'_>) -> Result<()> {
        self.columns = begin.names.to_vec();
        for name in &self.extra {
            if !self.columns.contains(name) {
                self.columns.push(name.clone());
            }
        }
        let fixed = ["step", "epoch", "seconds"].into_iter().map(String::from);
        let header = fixed.chain(self.columns.iter().map(|name| field(name))).collect::<Vec<_>>().join(",");
        let mut is_new = true;
        match begin.resumed {
            None => self.lines.start()?,
            Some(resumed) => {
                let path = self.lines.path().to_path_buf();
                self.lines.resume(|number, line| {
                    is_new = false;
                    if number == 0 {
                        let what = format!("the columns are `{line}`, and this training logs `{header}`; move the file away, and a new one is begun");
                        return if line == header { Ok(true) } else { Err(Error::file(&path, what)) };
                    }
                    let step = line.split(',').next().and_then(|step| step.parse::<u64>().ok());
                    let what = || format!("line {} begins with no step; move the file away, and a new one is begun", number + 1);
                    Ok(step.ok_or_else(|| Error::file(&path, what()))? <= resumed)
                })?;
            }
        }
        if is_new { self.lines.write(&header) } else { Ok(()) }
    }

    fn record(&mut self, record: &Entry<'_>) -> Result<()> {
        if let Some((name, _)) = record.values.iter().find(|(name, _)| !self.columns.contains(name)) {
            let what = format!("there is no column for `{name}`; add it with `.column(\"{name}\")`, or log JSON lines");
            return Err(Error::file(self.lines.path(), what));
        }
        let mut line = format!("{},{},{:.3}", record.step, record.epoch, record.seconds);
        for column in &self.columns {
            line.push(',');
            if let Some((_, value)) = record.values.iter().find(|(name, _)| name == column) {
                let _ = write!(line, "{value}");
            }
        }
        self.lines.write(&line)
    }
}
