//! Finds out what a process is: its name, the networks in its executable with their budgets, and the log of its training.
//!
//! An executable with a network has the network's record in it, as [`artefacts`](crate::artefacts) reads it after a build. So a process needs to
//! publish nothing, and one that was started before the command is known, too. Of several networks nobody knows which one runs: all are
//! listed.

use super::nvml::{Card, Process};
use crate::artefacts::records_of;
use crate::built::networks;
use crate::options::Settings;
use crate::plan::{PlannedProgram, steps};
use gpumem_core::cards;
use gpumem_core::memory::budget::{Budget, Line};
use gpumem_core::report::Device;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The most bytes of an executable that is read.
const MOST_BYTES: u64 = 1 << 30;

/// The most programs of one executable that are planned.
const MOST_PLANNED: usize = 8;

/// The bytes at the end of a log that are read.
const TAIL: u64 = 1 << 16;

/// A process on a card.
pub struct Program {
    pub process: Process,
    /// The name of the executable. `None` if the process is another user's, or outside of this container.
    pub name: Option<String>,
    /// The programs of its networks, each with the budget on this card.
    pub planned: Vec<Planned>,
    pub log: Option<Log>,
}

/// A program of a network, and its budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub label: String,
    pub program: &'static str,
    pub batch: u64,
    pub precision: &'static str,
    /// Bytes of each line that is shown, by its name.
    pub lines: Vec<(&'static str, u64)>,
    pub total: u64,
}

/// The newest records of a training's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    pub path: PathBuf,
    pub step: u64,
    /// Losses of the records, the oldest first.
    pub losses: Vec<f64>,
    /// Steps in a second, from the first to the last of these records. `None` for one record.
    pub steps_a_second: Option<f64>,
}

/// Processes that were looked at: their executables do not change.
#[derive(Default)]
pub struct Known {
    by_pid: BTreeMap<(u32, u32), (Option<String>, Vec<Planned>)>,
}

impl Known {
    /// Forgets all processes but these. A number may be given to another process.
    pub fn forget_others(&mut self, pids: &[u32]) {
        self.by_pid.retain(|(pid, _), _| pids.contains(pid));
    }

    /// Returns what is known of a process on a card.
    pub fn program(&mut self, process: Process, card: &Card) -> Program {
        let folder = PathBuf::from(format!("/proc/{}", process.pid));
        let known = self.by_pid.entry((process.pid, card.index)).or_insert_with(|| {
            let executable = folder.join("exe");
            let name = std::fs::read_link(&executable).ok();
            let name =
                name.and_then(|path| Some(path.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_string()));
            (name, planned(&executable, card))
        });
        let (name, planned) = known.clone();
        let log = if planned.is_empty() { None } else { log_of(&folder) };
        Program { process, name, planned, log }
    }
}

/// Returns the programs in an executable, with their budgets on a card. Empty for an executable without networks.
fn planned(executable: &Path, card: &Card) -> Vec<Planned> {
    let is_small = std::fs::metadata(executable).is_ok_and(|data| data.len() <= MOST_BYTES);
    let Some(bytes) = is_small.then(|| std::fs::read(executable).ok()).flatten() else { return Vec::new() };
    let (records, _) = records_of(executable, &bytes);
    let built = networks(records, &|_| None);
    let settings = Settings::default();
    let programs = built.networks.iter().filter_map(|network| steps(network, &settings).ok()).flatten();
    programs.take(MOST_PLANNED).filter_map(|program| on_card(&program, device(card))).collect()
}

/// Returns a program with its budget on a device.
fn on_card(program: &PlannedProgram, device: Device) -> Option<Planned> {
    let budget: Budget = program.written().ok()?;
    let total = program.total(budget, device);
    let budget = budget.with_reserve(device.reserve()).with_communication(device.communication(program.plan.ranks()));
    Some(Planned {
        label: program.label.clone(),
        program: program.program_name(),
        batch: program.plan.batch,
        precision: program.plan.precision.name(),
        lines: budget.shown().filter(|&line| line != Line::Total).map(|line| (line.name(), budget[line])).collect(),
        total,
    })
}

/// Returns the card of the table that a card is, or its size if it is in no table. Cards of one name may differ in memory.
fn device(card: &Card) -> Device {
    let mut name = card.name.as_str();
    for maker in ["NVIDIA ", "GeForce ", "Tesla "] {
        name = name.strip_prefix(maker).unwrap_or(name);
    }
    let found = cards::find(name.strip_suffix(" GPU").unwrap_or(name));
    // The driver keeps a few percent of the memory on the box.
    let is_as_large = |known: &&cards::Card| {
        let on_the_box = u64::from(known.spec_mib) << 20;
        card.total <= on_the_box && card.total >= on_the_box / 10 * 9
    };
    found.filter(is_as_large).map_or(Device::Size(card.total), Device::Known)
}

/// Returns the newest records of the log that a process has open: a file of JSON lines or of CSV, as a trainer writes it.
fn log_of(folder: &Path) -> Option<Log> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder.join("fd")).ok()?.flatten() {
        let is_log = |path: &PathBuf| {
            let end = path.extension().and_then(|end| end.to_str());
            matches!(end, Some("jsonl" | "csv")) && path.is_file()
        };
        paths.extend(std::fs::read_link(entry.path()).ok().filter(is_log));
    }
    paths.sort();
    paths.into_iter().find_map(|path| {
        let (beginning, end) = (beginning(&path)?, tail(&path)?);
        log(path, &beginning, &end)
    })
}

/// Returns the first line of a file.
fn beginning(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(TAIL).read_to_end(&mut bytes).ok()?;
    String::from_utf8_lossy(&bytes).lines().next().map(String::from)
}

/// Returns the last bytes of a file.
fn tail(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads records with a step, seconds and a loss. `None` if there are none.
fn log(path: PathBuf, beginning: &str, end: &str) -> Option<Log> {
    let columns: Vec<&str> = beginning.split(',').map(|name| name.trim().trim_matches('"')).collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let record = |line: &str| -> Option<(u64, f64, f64)> {
        if let Ok(value) = serde_json::from_str::<Value>(line) {
            return Some((value.get("step")?.as_u64()?, value.get("seconds")?.as_f64()?, value.get("loss")?.as_f64()?));
        }
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| cells.get(column(name)?).copied();
        Some((cell("step")?.parse().ok()?, cell("seconds")?.parse().ok()?, cell("loss")?.parse().ok()?))
    };
    let records: Vec<(u64, f64, f64)> = end.lines().filter_map(record).collect();
    let (first, last) = (records.first()?, records.last()?);
    let (steps, seconds) = (last.0.checked_sub(first.0)?, last.1 - first.1);
    let steps_a_second = (steps > 0 && seconds > 0.0).then(|| steps as f64 / seconds);
    Some(Log { path, step: last.0, losses: records.iter().map(|record| record.2).collect(), steps_a_second })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_records_of_a_log_are_read() {
        let lines = "{\"loss\":3.5,\"seconds\":1.0,\"step\":10}\n{\"val_loss\":3.0,\"seconds\":1.5,\"step\":10}\n\
                     {\"loss\":2.5,\"seconds\":3.0,\"step\":20}\n{\"loss\":2.";
        let found = log("log.jsonl".into(), "", lines).unwrap();
        assert_eq!((found.step, &found.losses[..], found.steps_a_second), (20, &[3.5, 2.5][..], Some(5.0)));
        let found =
            log("log.csv".into(), "step,epoch,seconds,loss", "step,epoch,seconds,loss\n4,0,2.0,1.25\n5,0,2.5,1.0\n");
        assert_eq!(found.map(|it| (it.step, it.losses, it.steps_a_second)), Some((5, vec![1.25, 1.0], Some(2.0))));
        assert_eq!(log("other.csv".into(), "a,b", "1,2\n"), None);
        assert_eq!(log("empty.jsonl".into(), "", ""), None);
        let one = log("one.jsonl".into(), "", "{\"loss\":3.5,\"seconds\":1.0,\"step\":10}\n").unwrap();
        assert_eq!(one.steps_a_second, None);
    }

    #[test]
    fn a_card_is_that_of_the_table_or_a_size() {
        let card = |name: &str, gib: u64| Card {
            index: 0,
            name: name.into(),
            uuid: None,
            total: gib << 30,
            used: 0,
            utilisation: None,
            watts: None,
            most_watts: None,
            celsius: None,
            processes: Vec::new(),
        };
        let slug = |name: &str, gib: u64| match device(&card(name, gib)) {
            Device::Known(card) => Some(card.slug),
            Device::Size(size) => {
                assert_eq!(size, gib << 30);
                None
            }
        };
        assert_eq!(slug("NVIDIA GeForce RTX 3060", 12), Some("rtx3060"));
        // Another card of that name has 8 GB.
        assert_eq!(slug("NVIDIA GeForce RTX 3060", 8), None);
        assert_eq!(slug("NVIDIA GeForce RTX 3060 Laptop GPU", 6), Some("rtx3060-laptop"));
        assert_eq!((slug("Tesla T4", 15), slug("NVIDIA Unheard Of", 12)), (Some("t4"), None));
    }
}
