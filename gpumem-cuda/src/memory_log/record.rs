//! Records of measurements of a card, its driver and its libraries, as a small file in the folder of the compiled kernels.
//!
//! ```text
//! card NVIDIA H200
//! driver 580.95.05
//! ...
//! context 402653184 88080384
//! network 5f0c... 104857600 20971520 31457280 5242880 4194304 -
//! ```
//!
//! If two processes store at the same time, the complete record of one of them remains; the other's measurements are made again. A file with an
//! invalid line is not a record.

use super::Stages;
use crate::card::Card;
use crate::compile::cache::{Cache, key};
use crate::libraries::preflight::Versions;
use gpumem_core::error::Error;
use gpumem_core::run::device::Job;
use std::fmt::Write as _;

/// The most networks in a record: those that were measured last.
const KEPT: usize = 64;

/// Bytes of a bare context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextBytes {
    /// The context's bytes with the smallest limits.
    pub(crate) bytes: u64,
    /// The bytes that lowering the limits freed.
    pub(crate) given_back: u64,
}

/// The measurements of a card.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    /// The smallest context that was measured; `None` if there was none.
    pub(crate) context: Option<ContextBytes>,
    /// Measurements by the network's key, the latest one last.
    networks: Vec<(String, Stages)>,
}

impl Record {
    /// Returns the measurement of this network; `None` if there is none.
    pub(crate) fn of(&self, network: &str) -> Option<Stages> {
        self.networks.iter().find(|(name, _)| name == network).map(|(_, stages)| *stages)
    }

    /// Adds a measurement, or replaces an earlier one if it is better.
    pub(crate) fn add(&mut self, network: &str, stages: Stages) {
        let best = self.of(network).map_or(stages, |before| before.better(stages));
        self.forget(network);
        self.networks.push((network.into(), best));
        let surplus = self.networks.len().saturating_sub(KEPT);
        self.networks.drain(..surplus);
    }

    /// Removes a measurement.
    pub(crate) fn forget(&mut self, network: &str) {
        self.networks.retain(|(name, _)| name != network);
    }

    /// Records the size of a context, if it is the smallest so far.
    pub(crate) fn add_context(&mut self, context: ContextBytes) {
        if self.context.is_none_or(|before| context.bytes < before.bytes) {
            self.context = Some(context);
        }
    }

    /// Returns the most bytes that any network took outside arena and context; `None` if no network was measured.
    pub(crate) fn most_beside(&self) -> Option<u64> {
        self.networks.iter().map(|(_, stages)| stages.beside()).max()
    }

    fn write(&self, about: &str) -> String {
        let mut text = about.to_string();
        if let Some(ContextBytes { bytes, given_back }) = self.context {
            let _ = writeln!(text, "context {bytes} {given_back}");
        }
        for (name, Stages { arena, handles, trials, modules, graphs, process }) in &self.networks {
            let process = process.map_or("-".into(), |bytes| bytes.to_string());
            let _ = writeln!(text, "network {name} {arena} {handles} {trials} {modules} {graphs} {process}");
        }
        text
    }

    /// Reads the text that `write` wrote about this card; `None` if it is invalid or about another card.
    fn read(text: &str, about: &str) -> Option<Record> {
        let mut record = Record::default();
        for line in text.strip_prefix(about)?.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            match fields[..] {
                ["context", bytes, given_back] => {
                    let context = ContextBytes { bytes: bytes.parse().ok()?, given_back: given_back.parse().ok()? };
                    record.context = Some(context);
                }
                ["network", name, arena, handles, trials, modules, graphs, process] => {
                    let number = |text: &str| text.parse::<u64>().ok();
                    let process = if process == "-" { None } else { Some(number(process)?) };
                    let [arena, handles, trials] = [number(arena)?, number(handles)?, number(trials)?];
                    let (modules, graphs) = (number(modules)?, number(graphs)?);
                    let stages = Stages { arena, handles, trials, modules, graphs, process };
                    record.networks.push((name.into(), stages));
                }
                _ => return None,
            }
        }
        Some(record)
    }
}

/// Reads a record, makes all the queries and additions that loading a network makes, and returns it in written form. `None` if `text` is not a
/// record. A heading of one line is put before `text` first.
#[doc(hidden)]
pub fn reread(text: &str) -> Option<String> {
    let about = "card\n";
    let record = Record::read(&format!("{about}{text}"), about)?;
    let mut asked = record.clone();
    for (network, stages) in &record.networks {
        asked.add(network, *stages);
    }
    let _ = asked.most_beside();
    for (network, _) in &record.networks {
        let _ = asked.of(network);
    }
    Some(record.write(""))
}

/// The record of a card, stored on disk.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    cache: Cache,
    about: String,
}

impl Records {
    /// Returns the records of this card with its driver and these libraries.
    pub(crate) fn of(card: &Card) -> Result<Records, Error> {
        let about = about(&card.name()?, card.driver.as_deref(), &Versions::found());
        Ok(Records { cache: card.cache.clone(), about })
    }

    /// Returns the stored record; an empty one if the file is missing or damaged.
    pub(crate) fn get(&self) -> Record {
        let bytes = self.cache.record(&self.key());
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| Record::read(&text, &self.about)).unwrap_or_default()
    }

    /// Changes the stored record.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Record)) {
        let before = self.get();
        let mut record = before.clone();
        change(&mut record);
        if record != before {
            self.cache.put_record(&self.key(), record.write(&self.about).as_bytes());
        }
    }

    fn key(&self) -> String {
        key(&["measured", &self.about])
    }
}

/// Returns everything but the network that the figures depend on, one item a line.
fn about(card: &str, driver: Option<&str>, versions: &Versions) -> String {
    let unknown = "-";
    let line = |text: &str| text.replace(['\n', '\r'], " ");
    let Versions { cuda, compiler, products, convolutions } = versions;
    let version =
        |version: &Option<(i32, i32)>| version.map_or("-".into(), |(major, minor)| format!("{major}.{minor}"));
    format!(
        "card {}\ndriver {}\ncuda {}\nnvrtc {}\ncublaslt {}\ncudnn {}\n",
        line(card),
        line(driver.unwrap_or(unknown)),
        version(cuda),
        version(compiler),
        version(products),
        version(convolutions)
    )
}

/// Returns the key of a network: equal for networks that take the same bytes of a card.
pub(crate) fn network(job: &Job, card: &Card) -> String {
    let served = job.served.as_ref().map(|served| served.batch);
    let others = job.others.iter().flat_map(|other| [&other.train, &other.evaluation]);
    let programs = job.train.iter().chain(&job.evaluation).chain([&job.infer]).chain(others);
    let operations: Vec<usize> = programs.map(|placed| placed.program.operations.len()).collect();
    let what = format!(
        "{} {} {:?} {:?} {:?} {} {} {} {} {} {:?}",
        job.arena,
        job.batch,
        job.precision,
        served,
        operations,
        job.tf32,
        job.deterministic,
        card.library,
        card.cudnn,
        card.autotune,
        card.warpgroups
    );
    key(&[env!("CARGO_PKG_VERSION"), job.name, &what])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: Stages = Stages { arena: 10, handles: 1, trials: 2, modules: 3, graphs: 4, process: None };

    fn versions() -> Versions {
        Versions { cuda: Some((13, 0)), compiler: Some((13, 0)), products: Some((13, 1)), convolutions: None }
    }

    fn records(name: &str) -> (Records, std::path::PathBuf) {
        let folder = std::env::temp_dir().join(format!("gpumem-measured-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let about = about("NVIDIA H200", Some("580.95.05"), &versions());
        (Records { cache: Cache::at(Some(folder.clone())), about }, folder)
    }

    #[test]
    fn what_was_measured_comes_back() {
        let (records, folder) = records("round-trip");
        assert_eq!(records.get(), Record::default());
        records.update(|record| {
            record.add_context(ContextBytes { bytes: 500, given_back: 70 });
            record.add("a", STAGES);
            record.add("b", Stages { process: Some(17), ..STAGES });
        });
        let record = records.get();
        assert_eq!(record.context, Some(ContextBytes { bytes: 500, given_back: 70 }));
        assert_eq!(record.of("a"), Some(STAGES));
        assert_eq!(record.of("b").unwrap().beside(), 7);
        assert_eq!(record.most_beside(), Some(10));
        assert_eq!(record.of("c"), None);
        records.update(|record| record.forget("a"));
        assert_eq!(records.get().of("a"), None);
        // A record of another driver does not apply.
        let other = about("NVIDIA H200", Some("590.1"), &versions());
        assert_eq!(Records { about: other, ..records.clone() }.get(), Record::default());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing unfinished is left");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_record_is_none() {
        let (records, folder) = records("damage");
        records.update(|record| record.add("a", STAGES));
        let path = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(records.get(), Record::default(), "byte {place} differs");
            std::fs::write(&path, &whole[..place]).unwrap();
            assert_eq!(records.get(), Record::default(), "cut off after {place} bytes");
        }
        std::fs::remove_dir_all(folder).unwrap();
        let about = about("NVIDIA H200", None, &versions());
        for line in ["network a 1 2 3 4 5", "network a 1 2 3 4 5 x", "context 1", "context 1 -2", "more", ""] {
            assert_eq!(Record::read(&format!("{about}{line}\n"), &about), None, "`{line}`");
        }
        assert_eq!(Record::read("card another\n", &about), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_failure() {
        let (mut records, folder) = records("nowhere");
        std::fs::remove_dir_all(&folder).unwrap();
        records.update(|record| record.add("a", STAGES));
        assert_eq!(records.get(), Record::default());
        records.cache = Cache::at(None);
        records.update(|record| record.add("a", STAGES));
        assert_eq!(records.get(), Record::default());
    }

    #[test]
    fn the_smaller_context_is_kept_and_old_networks_go() {
        let mut record = Record::default();
        record.add_context(ContextBytes { bytes: 500, given_back: 1 });
        record.add_context(ContextBytes { bytes: 600, given_back: 2 });
        assert_eq!(record.context, Some(ContextBytes { bytes: 500, given_back: 1 }));
        (0..=KEPT).for_each(|index| record.add(&index.to_string(), STAGES));
        assert_eq!((record.of("0"), record.of("1"), record.networks.len()), (None, Some(STAGES), KEPT));
        record.add("1", Stages { trials: 100, ..STAGES });
        assert_eq!(record.of("1"), Some(STAGES), "the smaller one");
    }
}
