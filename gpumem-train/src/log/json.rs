//! A log of JSON lines.

use super::lines::Lines;
use super::{Begin, Entry, Logger};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A log with a JSON object in each line: `{"epoch":0,"loss":0.25,"lr":0.001,"seconds":1.5,"step":10}`.
///
/// Lines of steps have `loss`; those of evaluations have `train_loss`, `val_loss` and the metrics, tables as arrays of rows. NaN and
/// infinite values are `null`. A training that starts anew keeps an earlier file under another name, as `log.1.jsonl`.
///
/// ```python
/// pandas.read_json("log.jsonl", lines=True)
/// ```
#[derive(Debug)]
pub struct JsonLines {
    lines: Lines,
}

impl JsonLines {
    /// Returns a log in this file, which is opened when the training starts.
    pub fn new(path: impl Into<PathBuf>) -> JsonLines {
        JsonLines { lines: Lines::new(path) }
    }
}

impl Logger for JsonLines {
    fn begin(&mut self, begin: &Begin<'_>) -> Result<()> {
        let Some(resumed) = begin.resumed else { return self.lines.start() };
        let path = self.lines.path().to_path_buf();
        self.lines.resume(|number, line| {
            let step =
                serde_json::from_str::<Map<String, Value>>(line).ok().and_then(|line| line.get("step")?.as_u64());
            let Some(step) = step else {
                let what = format!(
                    "line {} is no JSON object with a `step`; move the file away, and a new one is begun",
                    number + 1
                );
                return Err(Error::file(&path, what));
            };
            Ok(step <= resumed)
        })
    }

    fn record(&mut self, record: &Entry<'_>) -> Result<()> {
        let mut line = Map::new();
        line.insert("step".into(), record.step.into());
        line.insert("epoch".into(), record.epoch.into());
        line.insert("seconds".into(), ((record.seconds * 1e3).round() / 1e3).into());
        for (name, value) in record.values {
            line.insert(name.clone(), (*value).into());
        }
        for table in record.tables {
            let rows = table.rows().map(|row| row.iter().map(|&count| Value::from(count)).collect());
            line.insert(table.name.clone(), Value::Array(rows.collect()));
        }
        self.lines.write(&Value::Object(line).to_string())
    }
}
