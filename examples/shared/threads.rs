//! Ranks in threads of one process, for examples that also run on ranks of MPI.

use gpumem::{Cpu, Ranks};
use std::error::Error;

/// Runs an example on ranks in threads of this process.
pub fn in_process(
    count: usize,
    run: impl Fn(&Ranks, &Cpu) -> Result<(), Box<dyn Error>> + Sync,
) -> Result<(), Box<dyn Error>> {
    let devices = Cpu::ranks(count)?;
    let run = &run;
    std::thread::scope(|scope| {
        let start = |(ranks, device)| scope.spawn(move || run(&ranks, &device).map_err(|error| error.to_string()));
        let threads: Vec<_> = Ranks::in_process(count).zip(devices).map(start).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a rank panicked")??))
    })
}
