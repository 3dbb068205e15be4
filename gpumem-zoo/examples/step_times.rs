//! Measures the arena and the time of a step on the CPU, for each way to save memory.
//!
//! ```text
//! cargo run --release -p gpumem-zoo --example step_times             # all four networks, on one core
//! cargo run --release -p gpumem-zoo --example step_times -- GPT-2    # one of them
//! ```
//!
//! Four networks at sizes that a small machine runs are lowered from their blueprints, once for each way, and planned by the functions
//! that the compiler uses. Each variant is loaded beside the plain step, and the two run in turn on one thread. What is compared is the time
//! that the process had on a CPU, of each pair by itself, so that other programs disturb neither; the table has the median.
#![allow(missing_docs)]

#[path = "step_times/networks.rs"]
mod networks;
#[path = "step_times/running.rs"]
mod running;
#[path = "step_times/ways.rs"]
mod ways;

use networks::{CASES, Case};
use running::{Clock, Running};
use ways::{Step, WAYS};

type Failure = Box<dyn std::error::Error>;

/// Pairs of steps behind a median.
const PAIRS: usize = 5;

/// A column of the table: a cell for each way.
struct Column {
    title: String,
    bytes: Vec<String>,
    times: Vec<String>,
}

fn main() -> Result<(), Failure> {
    let wanted = std::env::args().nth(1);
    let is_wanted = |case: &&Case| wanted.as_deref().is_none_or(|name| name == case.name);
    let cases: Vec<&Case> = CASES.iter().filter(is_wanted).collect();
    if cases.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("give none or one of {}", names.join(", ")).into());
    }
    let clock = Clock::new();
    let columns = cases.into_iter().map(|case| column(case, &clock)).collect::<Result<Vec<_>, _>>()?;
    println!("{}", table(&columns));
    println!("{}, medians of {PAIRS} pairs of steps", clock.what());
    Ok(())
}

/// Measures a network in every way.
fn column(case: &Case, clock: &Clock) -> Result<Column, Failure> {
    let title = format!("{}, {}", case.name, case.size);
    let steps: Vec<Option<Step>> = WAYS.iter().map(|way| ways::step(case, way)).collect::<Result<_, _>>()?;
    let plain = steps[0].as_ref().ok_or("the first way is the plain step")?;
    let mut beside = Running::new(plain, case)?;
    let mut column = Column { title, bytes: Vec::new(), times: Vec::new() };
    for (number, (way, step)) in WAYS.iter().zip(&steps).enumerate() {
        column.bytes.push(step.as_ref().map_or(String::new(), |step| step.mib().to_string()));
        column.times.push(match step {
            None => String::new(),
            Some(_) if number == 0 => format!("{:.2} s", beside.seconds(clock)?),
            Some(step) if !step.runs() => "not run".into(),
            Some(step) => change(&mut beside, step, case, clock)?,
        });
        eprintln!("{}: {}: {} MiB, {}", case.name, way.name, column.bytes[number], column.times[number]);
    }
    Ok(column)
}

/// The change of a step's time in hundredths, beside what the model of recomputation says.
fn change(plain: &mut Running, step: &Step, case: &Case, clock: &Clock) -> Result<String, Failure> {
    let mut other = Running::new(step, case)?;
    plain.step()?;
    other.step()?;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        // What comes second finds other caches: each of the two is it in turn.
        let (one, another) = if pair % 2 == 0 {
            (plain.seconds(clock)?, other.seconds(clock)?)
        } else {
            let another = other.seconds(clock)?;
            (plain.seconds(clock)?, another)
        };
        ratios.push(another / one);
    }
    ratios.sort_by(f64::total_cmp);
    let hundredths = (100.0 * (ratios[PAIRS / 2] - 1.0)).round();
    let sign = if hundredths > 0.0 { "+" } else { "" };
    let model = step.more.map_or(String::new(), |more| format!(" (+{} %)", more.div_ceil(10)));
    // Without the sign of a 0.
    Ok(format!("{sign}{} %{model}", hundredths as i64))
}

/// The table: a line for each way, two columns for each network.
fn table(columns: &[Column]) -> String {
    let titles: Vec<String> = columns.iter().map(|column| format!(" {}: MiB | time |", column.title)).collect();
    let mut text = format!("| |{}\n| --- |{}\n", titles.concat(), " ---: | ---: |".repeat(columns.len()));
    for (number, way) in WAYS.iter().enumerate() {
        let cells = columns.iter().map(|column| format!(" {} | {} |", column.bytes[number], column.times[number]));
        text += &format!("| {} |{}\n", way.name, cells.collect::<String>());
    }
    text
}
