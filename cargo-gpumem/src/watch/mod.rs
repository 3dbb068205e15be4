//! Implements `cargo gpumem watch`, which shows cards and their processes while they run. Processes of gpumem have their budgets beside them.

mod nvml;
mod process;
mod report;
mod screen;

use crate::Failure;
use crate::options::{Plain, Watch};
use crate::output::print;
use nvml::{Card, Cards};
use process::{Known, Program};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

/// A card, and the programs that run on it.
pub struct Watched {
    pub card: Card,
    pub programs: Vec<Program>,
}

/// Reads cards and processes again and again.
pub struct Reader {
    cards: Cards,
    known: Known,
}

impl Reader {
    fn new() -> Result<Reader, Failure> {
        Ok(Reader { cards: Cards::open()?, known: Known::default() })
    }

    /// Returns all cards as they are now.
    pub fn read(&mut self) -> Result<Vec<Watched>, Failure> {
        let cards = self.cards.read()?;
        let pids: Vec<u32> = cards.iter().flat_map(|card| &card.processes).map(|process| process.pid).collect();
        self.known.forget_others(&pids);
        let watched = cards.into_iter().map(|card| {
            let programs = card.processes.iter().map(|process| self.known.program(*process, &card)).collect();
            Watched { card, programs }
        });
        Ok(watched.collect())
    }
}

pub fn run(arguments: &Watch) -> Result<ExitCode, Failure> {
    let mut reader = Reader::new()?;
    let watched = reader.read()?;
    let is_once = arguments.once || arguments.format == Plain::Json || !std::io::stdout().is_terminal();
    match (is_once, arguments.format) {
        (true, Plain::Json) => print(&format!("{:#}\n", report::as_json(&watched)))?,
        (true, Plain::Table) => print(&report::text(&watched))?,
        (false, _) => screen::run(&mut reader, watched, Duration::from_secs_f64(arguments.interval))?,
    }
    Ok(ExitCode::SUCCESS)
}
