//! The place of a process among the ranks that share training steps, as launchers tell it.
//!
//! A launcher starts one process for each rank, and tells it its number by environment variables. The variables of Slurm come last: whatever
//! `torchrun` and `mpirun` start inside a job of Slurm inherits those of the job, with the same number in each process.

use crate::error::Error;
use crate::network::Network;
use crate::run::device::{Device, Runner};
use crate::run::net::Net;
use crate::train::Ranks as Planned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// The variable with the seconds that a rank waits for the others.
pub const TIMEOUT: &str = "GPUMEM_RANKS_TIMEOUT";

/// The seconds without that variable.
const SECONDS: u64 = 600;

/// Returns the time that a rank of a device waits for the others, if [`TIMEOUT`] has this value.
///
/// # Errors
/// [`Error::Unsupported`] for a value that is no number of seconds.
pub fn timeout(device: &'static str, written: Option<&str>) -> Result<Duration, Error> {
    let Some(written) = written.filter(|written| !written.trim().is_empty()) else {
        return Ok(Duration::from_secs(SECONDS));
    };
    written.trim().parse().ok().filter(|&seconds| seconds > 0).map(Duration::from_secs).ok_or_else(|| {
        let what =
            format!("`{TIMEOUT}={written}` is no number of seconds; write a whole one from 1 on, such as {SECONDS}");
        Error::Unsupported { device, what }
    })
}

/// Returns the error of a rank that has waited in vain for `others`.
pub fn waited(rank: u64, timeout: Duration, others: &str) -> Error {
    let what = format!(
        "waited {} s for {others}; all ranks make the same calls in the same order, and `{TIMEOUT}` sets how long they wait",
        timeout.as_secs()
    );
    Error::Ranks { rank, what }
}

/// The name of what errors of this module are about.
const ENVIRONMENT: &str = "the environment";

/// The place of a process among the ranks that share training steps: how many there are, and which of them this is.
///
/// ```
/// # use gpumem_core::run::ranks::Ranks;
/// // `mpirun -np 2` sets these for the second process that it starts.
/// let variables = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
/// let ranks = Ranks::from_variables(|name| {
///     variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.to_string())
/// })?;
/// assert_eq!((ranks.rank(), ranks.count(), ranks.is_first()), (1, 2, false));
/// assert_eq!(ranks.part(&[10, 11, 12, 13]), [12, 13]);
/// # Ok::<(), gpumem_core::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    rank: u64,
    count: u64,
    local_rank: u64,
    local_count: u64,
}

/// A launcher, and the variables that it sets.
struct Launcher {
    rank: &'static str,
    count: &'static str,
    local_rank: &'static str,
    /// The number of ranks on this machine, which not every version sets.
    local_count: &'static str,
    /// The variables of which one is enough to know the launcher.
    marks: &'static [&'static str],
    /// A command that starts two ranks.
    command: &'static str,
}

/// The launchers, in the order in which they are looked for.
const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        rank: "RANK",
        count: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_count: "LOCAL_WORLD_SIZE",
        marks: &["RANK", "WORLD_SIZE", "LOCAL_RANK"],
        command: "torchrun --no-python --nproc-per-node 2 PROGRAM",
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        count: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_count: "OMPI_COMM_WORLD_LOCAL_SIZE",
        marks: &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        command: "mpirun -np 2 PROGRAM",
    },
    Launcher {
        rank: "SLURM_PROCID",
        count: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_count: "SLURM_NTASKS_PER_NODE",
        // `salloc` sets the number of tasks for a shell, which is no task.
        marks: &["SLURM_PROCID"],
        command: "srun --ntasks 2 PROGRAM",
    },
];

impl Launcher {
    /// Reads the place of this process.
    fn read(&self, look_up: impl Fn(&str) -> Option<String>) -> Result<Ranks, Error> {
        let names = [self.rank, self.count, self.local_rank];
        let values = names.map(&look_up);
        let [Some(rank), Some(count), Some(local_rank)] = &values else {
            return Err(self.incomplete(names, &values));
        };
        let (written_rank, written_count, written_local) = (rank, count, local_rank);
        let (rank, count) = (self.number(self.rank, rank)?, self.number(self.count, count)?);
        let local_rank = self.number(self.local_rank, local_rank)?;
        if count > Planned::MOST {
            let what = format!("`{}={written_count}` is more than {} ranks", self.count, Planned::MOST);
            return Err(self.refused(&what));
        }
        for (name, written, number) in [(self.rank, written_rank, rank), (self.local_rank, written_local, local_rank)] {
            if number >= count {
                let what = format!(
                    "`{name}={written}` is not below `{}={written_count}`, and ranks are counted from 0",
                    self.count
                );
                return Err(self.refused(&what));
            }
        }
        // Slurm writes `2` here, or `2(x3)`, or nothing. All ranks may be on this machine.
        let local_count = look_up(self.local_count).and_then(|written| written.trim().parse().ok());
        let local_count = local_count.filter(|&local| (local_rank + 1..=count).contains(&local)).unwrap_or(count);
        Ok(Ranks { rank, count, local_rank, local_count })
    }

    /// Returns the number that a variable has.
    fn number(&self, name: &str, written: &str) -> Result<u64, Error> {
        let most = u64::from(u32::MAX);
        let number = written.trim().parse().ok().filter(|&number| number <= most);
        number.ok_or_else(|| self.refused(&format!("`{name}={written}` is no whole number")))
    }

    /// Returns the error for a set of variables of which some are missing.
    fn incomplete(&self, names: [&str; 3], values: &[Option<String>; 3]) -> Error {
        let all = names.iter().zip(values);
        let set: Vec<String> =
            all.clone().filter_map(|(name, value)| Some(format!("`{name}={}`", value.as_ref()?))).collect();
        let missing: Vec<String> =
            all.filter(|(_, value)| value.is_none()).map(|(name, _)| format!("`{name}`")).collect();
        self.refused(&format!("{} without {}", set.join(" and "), missing.join(" and ")))
    }

    fn refused(&self, what: &str) -> Error {
        let [rank, count, local_rank] = [self.rank, self.count, self.local_rank];
        let what = format!(
            "{what}; start one process for each rank, as `{}` does, or unset `{rank}`, `{count}` and `{local_rank}` to run on one rank",
            self.command
        );
        Error::Unsupported { device: ENVIRONMENT, what }
    }
}

impl Ranks {
    /// One rank.
    pub const ALONE: Ranks = Ranks { rank: 0, count: 1, local_rank: 0, local_count: 1 };

    /// Returns the place of rank `rank` of `count`, for programs that start their ranks without a launcher. All ranks count as one machine's.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a number that is not below the count, and for more ranks than there may be.
    pub fn new(rank: u64, count: u64) -> Result<Ranks, Error> {
        if rank >= count || count > Planned::MOST {
            let most = Planned::MOST;
            let what = format!("there is no rank {rank} of {count}; count ranks from 0, up to {most} of them");
            return Err(Error::Unsupported { device: "ranks", what });
        }
        Ok(Ranks { rank, count, local_rank: rank, local_count: count })
    }

    /// Returns the place that a launcher gave to this process, or one rank without a launcher. It reads the first of these sets of variables:
    ///
    /// | launcher | variables |
    /// | --- | --- |
    /// | `torchrun` | `RANK`, `WORLD_SIZE`, `LOCAL_RANK` |
    /// | Open MPI's `mpirun` | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`, `OMPI_COMM_WORLD_LOCAL_RANK` |
    /// | Slurm's `srun` | `SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID` |
    ///
    /// # Errors
    /// A set that is not complete, or a number that is not below the number of ranks.
    #[cfg(feature = "std")]
    pub fn from_environment() -> Result<Ranks, Error> {
        Ranks::from_variables(|name| std::env::var(name).ok())
    }

    /// Returns the place that variables state, of which `look_up` returns the values. An empty variable counts as none.
    ///
    /// # Errors
    /// A set of variables that is not complete, or a number that is not below the number of ranks.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Result<Ranks, Error> {
        let look_up = |name: &str| look_up(name).filter(|value| !value.trim().is_empty());
        let is_there = |launcher: &&Launcher| launcher.marks.iter().any(|mark| look_up(mark).is_some());
        LAUNCHERS.iter().find(is_there).map_or(Ok(Ranks::ALONE), |launcher| launcher.read(look_up))
    }

    /// Returns the places of `count` ranks of one process, in the order of the devices of `Cpu::ranks(count)`.
    pub fn in_process(count: usize) -> impl Iterator<Item = Ranks> {
        let count = count as u64;
        (0..count).map(move |rank| Ranks { rank, count, local_rank: rank, local_count: count })
    }

    /// Returns the number of this rank, from 0.
    pub const fn rank(&self) -> u64 {
        self.rank
    }

    /// Returns the number of ranks.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of this rank among those of its machine, from 0.
    pub const fn local_rank(&self) -> u64 {
        self.local_rank
    }

    /// Returns the number of ranks on this machine. If the launcher does not tell it, returns the number of all ranks.
    pub const fn local_count(&self) -> u64 {
        self.local_count
    }

    /// True for rank 0, which is the one to print and to write files.
    pub const fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// True if there is one rank.
    pub const fn is_alone(&self) -> bool {
        self.count == 1
    }

    /// Returns the samples of this rank: part r of a batch `[B, ..]` of N ranks is `[r * B / N, (r + 1) * B / N)`.
    ///
    /// The parts have equal sizes if N divides B, as it does for the batch of `TRAIN`.
    pub fn part<'b, T>(&self, batch: &'b [T]) -> &'b [T] {
        let first = |rank: u64| (batch.len() as u128 * u128::from(rank) / u128::from(self.count)) as usize;
        &batch[first(self.rank)..first(self.rank + 1)]
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the number of this rank, from 0: 0 without other ranks.
    pub fn rank(&self) -> usize {
        self.runner.rank()[0] as usize
    }

    /// Returns the number of ranks that share the training steps: 1 without other ranks.
    pub fn ranks(&self) -> usize {
        self.runner.rank()[1] as usize
    }

    /// Returns true on all ranks if `condition` is true on one of them, such as a request to stop. All ranks call it.
    ///
    /// # Errors
    /// [`Error::Ranks`] if another rank has stopped or does not answer.
    pub fn any_rank(&mut self, condition: bool) -> Result<bool, Error> {
        self.runner.any_rank(condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Reads variables that are written as `NAME=value NAME=value`.
    fn read(variables: &str) -> Result<Ranks, Error> {
        let look_up = |name: &str| {
            let all = variables.split_whitespace().filter_map(|variable| variable.split_once('='));
            all.filter(|(variable, _)| *variable == name).map(|(_, value)| value.to_string()).next()
        };
        Ranks::from_variables(look_up)
    }

    const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node0 MASTER_PORT=29400";
    const MPIRUN: &str =
        "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2";
    const SRUN: &str = "SLURM_PROCID=3 SLURM_NTASKS=6 SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=3";

    #[test]
    fn launchers_tell_the_place_of_a_process() {
        for (variables, place) in [
            ("", [0, 1, 0, 1]),
            ("PATH=/usr/bin RANK= WORLD_SIZE=", [0, 1, 0, 1]),
            (TORCHRUN, [5, 8, 1, 4]),
            (MPIRUN, [2, 4, 0, 2]),
            (SRUN, [3, 6, 0, 3]),
            // A shell of `salloc` is no task.
            ("SLURM_JOB_ID=7 SLURM_NTASKS=6 SLURM_NTASKS_PER_NODE=3", [0, 1, 0, 1]),
            ("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", [0, 1, 0, 1]),
            // Without a number of local ranks, or with one that cannot be.
            ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1", [1, 2, 1, 2]),
            ("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=1", [1, 2, 1, 2]),
            ("SLURM_PROCID=3 SLURM_NTASKS=6 SLURM_LOCALID=0 SLURM_NTASKS_PER_NODE=3(x2)", [3, 6, 0, 6]),
        ] {
            let ranks = read(variables).unwrap();
            let found = [ranks.rank(), ranks.count(), ranks.local_rank(), ranks.local_count()];
            assert_eq!(found, place, "{variables}");
            assert_eq!((ranks.is_first(), ranks.is_alone()), (place[0] == 0, place[1] == 1), "{variables}");
        }
    }

    #[test]
    fn places_without_a_launcher() {
        assert_eq!(Ranks::new(0, 1), Ok(Ranks::ALONE));
        assert_eq!(Ranks::new(2, 3).ok(), Ranks::in_process(3).last());
        for (rank, count) in [(3, 3), (0, 0), (1, Planned::MOST + 1)] {
            let error = Ranks::new(rank, count).unwrap_err().to_string();
            let expected =
                format!("ranks: there is no rank {rank} of {count}; count ranks from 0, up to 65536 of them");
            assert_eq!(error, expected);
        }
    }

    /// Processes that `torchrun` and `mpirun` start inside a job all have the rank of the job's task.
    #[test]
    fn inner_launchers_come_first() {
        assert_eq!(read(&[SRUN, TORCHRUN].join(" ")), read(TORCHRUN));
        assert_eq!(read(&[SRUN, MPIRUN].join(" ")), read(MPIRUN));
        assert_eq!(read(&[MPIRUN, TORCHRUN].join(" ")), read(TORCHRUN));
        let error = read(&[SRUN, "WORLD_SIZE=2 RANK=0"].join(" ")).unwrap_err().to_string();
        assert!(error.contains("without `LOCAL_RANK`"), "{error}");
    }

    #[test]
    fn what_is_wrong_with_variables() {
        let torchrun = "; start one process for each rank, as `torchrun --no-python --nproc-per-node 2 PROGRAM` does, or unset `RANK`, \
                        `WORLD_SIZE` and `LOCAL_RANK` to run on one rank";
        let mpirun = "; start one process for each rank, as `mpirun -np 2 PROGRAM` does, or unset `OMPI_COMM_WORLD_RANK`, \
                      `OMPI_COMM_WORLD_SIZE` and `OMPI_COMM_WORLD_LOCAL_RANK` to run on one rank";
        let srun = "; start one process for each rank, as `srun --ntasks 2 PROGRAM` does, or unset `SLURM_PROCID`, `SLURM_NTASKS` and \
                    `SLURM_LOCALID` to run on one rank";
        for (variables, what, then) in [
            ("WORLD_SIZE=2", "`WORLD_SIZE=2` without `RANK` and `LOCAL_RANK`", torchrun),
            ("RANK=1 WORLD_SIZE=2", "`RANK=1` and `WORLD_SIZE=2` without `LOCAL_RANK`", torchrun),
            ("LOCAL_RANK=0 RANK=0", "`RANK=0` and `LOCAL_RANK=0` without `WORLD_SIZE`", torchrun),
            (
                "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0",
                "`RANK=2` is not below `WORLD_SIZE=2`, and ranks are counted from 0",
                torchrun,
            ),
            (
                "RANK=0 WORLD_SIZE=0 LOCAL_RANK=0",
                "`RANK=0` is not below `WORLD_SIZE=0`, and ranks are counted from 0",
                torchrun,
            ),
            (
                "RANK=0 WORLD_SIZE=2 LOCAL_RANK=9",
                "`LOCAL_RANK=9` is not below `WORLD_SIZE=2`, and ranks are counted from 0",
                torchrun,
            ),
            ("RANK=one WORLD_SIZE=2 LOCAL_RANK=0", "`RANK=one` is no whole number", torchrun),
            ("RANK=-1 WORLD_SIZE=2 LOCAL_RANK=0", "`RANK=-1` is no whole number", torchrun),
            ("RANK=0 WORLD_SIZE=70000 LOCAL_RANK=0", "`WORLD_SIZE=70000` is more than 65536 ranks", torchrun),
            ("RANK=0 WORLD_SIZE=99999999999 LOCAL_RANK=0", "`WORLD_SIZE=99999999999` is no whole number", torchrun),
            (
                "OMPI_COMM_WORLD_RANK=1",
                "`OMPI_COMM_WORLD_RANK=1` without `OMPI_COMM_WORLD_SIZE` and `OMPI_COMM_WORLD_LOCAL_RANK`",
                mpirun,
            ),
            ("SLURM_PROCID=1 SLURM_LOCALID=1", "`SLURM_PROCID=1` and `SLURM_LOCALID=1` without `SLURM_NTASKS`", srun),
        ] {
            let error = read(variables).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }));
            assert_eq!(error.to_string(), format!("the environment: {what}{then}"), "{variables}");
        }
    }

    #[test]
    fn parts_of_a_batch_follow_each_other() {
        let batch: Vec<usize> = (0..12).collect();
        for count in [1, 2, 3, 4, 5, 12, 20] {
            let parts: Vec<&[usize]> = Ranks::in_process(count).map(|ranks| ranks.part(&batch)).collect();
            assert_eq!(parts.concat(), batch);
            assert!(12 % count > 0 || parts.iter().all(|part| part.len() == 12 / count));
        }
        assert_eq!(Ranks::ALONE.part(&batch), batch);
    }
}
