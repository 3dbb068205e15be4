//! The choice between attention's forward pass that every card runs and its counterpart on warpgroup instructions.
//!
//! The counterpart is never taken unseen. Both run on the same numbers in the network's own memory, and their results are compared, within what the
//! roundings of the format explain. If one differs, or fails, no network of the process has it any more. Otherwise their times decide.

use super::arena::Arena;
use super::graph::BoundKernel;
use super::modules::Modules;
use super::programs::Calls;
use super::transfers::Transfers;
use crate::calls::{Argument, Call, Launch, place};
use crate::card::{Card, Warpgroups};
use crate::error::failure;
use crate::libraries::autotune::Race;
use crate::operations::{LaunchContext, warpgroup_launches};
use crate::warning::notice;
use cudarc::driver::CudaStream;
use gpumem_core::error::Error;
use gpumem_core::memory::place::Placed;
use gpumem_core::run::device::Job;
use gpumem_core::{Format, Half};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Queries, keys and values lie between these. Large ones make scores differ much, so that a key that is left out or read wrongly shows.
const LARGEST: f32 = 4.0;

/// The number of elements after which queries, keys and values begin again, a prime number, so that they begin at another place of each row.
const PERIOD: usize = 65_521;

/// Elements after which numbers are larger or smaller, so that the score to which weights are relative moves.
const STRETCH: usize = 8_209;

/// The largest difference of two logarithms of sums. Both are sums in f32 of exponentials of up to some hundred terms of a score.
const LOGARITHMS: f32 = 1e-3;

/// True once the counterpart of a launch has failed, or has given other results.
static IS_LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// A launch in its program, and its counterpart.
struct Pair {
    /// Index of the program, of the group in it and of the call in that.
    at: [usize; 3],
    own: Launch,
    counterpart: Launch,
}

impl Pair {
    /// Returns what launches with the same choice have in common: all but if they save logarithms. So a value that is recomputed has the same bits.
    fn key(&self) -> (Vec<(&'static str, String)>, [u32; 3]) {
        let constants = self.own.kernel.constants.iter().filter(|(name, _)| *name != "SAVES");
        (constants.cloned().collect(), self.own.grid)
    }
}

/// Replaces launches of attention by their counterparts on warpgroup instructions, if the card has them, they agree, and they are faster.
///
/// With `Cuda::with_wgmma(true)` time does not matter. A network that is `deterministic` is not timed.
pub(super) fn choose(
    card: &Card,
    (job, setting): (&Job, LaunchContext),
    (arena, stream): (&Arena, &Arc<CudaStream>),
    calls: &mut Calls,
    modules: &mut Modules,
) -> Result<(), Error> {
    let is_wanted = match card.warpgroups {
        Warpgroups::Timed => card.autotune && !job.deterministic,
        Warpgroups::Always => true,
        Warpgroups::Never => false,
    };
    if !is_wanted || IS_LEFT_OUT.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut programs = calls.programs(job, setting);
    let mut pairs = Vec::new();
    for (program, (placed, setting, groups)) in programs.iter().enumerate() {
        for (group, step) in groups.iter().enumerate() {
            for (call, counterpart) in warpgroup_launches(placed, *setting, step)? {
                let Call::Kernel(own) = step.calls[call].clone() else { continue };
                pairs.push(Pair { at: [program, group, call], own, counterpart });
            }
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let kernels: BTreeSet<_> = pairs.iter().map(|pair| pair.counterpart.kernel.clone()).collect();
    let more = match Modules::new(card, kernels) {
        Ok(more) => more,
        Err(error) => {
            leave_out(&error.to_string());
            return Ok(());
        }
    };
    let mut trial = Trial { half: half(setting), arena, stream, transfers: Transfers::new(stream)? };
    let mut bound = Vec::new();
    for pair in &pairs {
        let (placed, ..) = programs[pair.at[0]];
        let own = BoundKernel::new(&pair.own, modules, (arena, placed), 0)?;
        bound.push([own, BoundKernel::new(&pair.counterpart, &more, (arena, placed), 0)?]);
    }
    // Launches that differ in nothing but their tensors are tried once.
    let mut tried = BTreeSet::new();
    for (pair, both) in pairs.iter().zip(&bound) {
        if tried.insert((&pair.counterpart.kernel, pair.counterpart.grid))
            && let Some(why) = trial.differ(&pair.own, programs[pair.at[0]].0, both)?
        {
            leave_out(&why);
            return Ok(());
        }
    }
    let mut choices = BTreeMap::new();
    for (pair, both) in pairs.iter().zip(&bound) {
        let is_taken = match choices.get(&pair.key()) {
            Some(&is_taken) => is_taken,
            None if card.warpgroups == Warpgroups::Always => true,
            None => trial.is_faster(&pair.own, programs[pair.at[0]].0, both)?,
        };
        choices.insert(pair.key(), is_taken);
        if is_taken {
            let [program, group, call] = pair.at;
            programs[program].2[group].calls[call] = pair.counterpart.clone().into();
        }
    }
    if choices.values().any(|&is_taken| is_taken) {
        modules.join(more);
    }
    Ok(())
}

/// Leaves the kernel out of all networks of the process, and says why.
fn leave_out(why: &str) {
    IS_LEFT_OUT.store(true, Ordering::Relaxed);
    notice(&format!(
        "attention runs without warpgroup instructions, on the kernel of other cards: {why}; `Cuda::with_wgmma(false)` leaves out the trial"
    ));
}

/// The format of activations, which has 16 bits for these kernels.
fn half(setting: LaunchContext) -> Half {
    if setting.precision.narrow() == Format::Bf16 { Half::Bf16 } else { Half::F16 }
}

/// Runs of kernels in the arena of a network that is being loaded, whose contents nobody has written yet.
struct Trial<'a> {
    half: Half,
    arena: &'a Arena,
    stream: &'a Arc<CudaStream>,
    transfers: Transfers,
}

impl Trial<'_> {
    /// Returns in which way the results of the second kernel differ from those of the first; `None` if they agree.
    fn differ(&mut self, launch: &Launch, placed: &Placed, both: &[BoundKernel; 2]) -> Result<Option<String>, Error> {
        self.fill(launch, placed)?;
        let [own, counterpart] = both;
        let expected = self.results(launch, placed, own)?;
        let found = match self.results(launch, placed, counterpart) {
            Ok(found) => found,
            // A launch that was refused leaves the card as it was. One that failed has broken the context, and this returns the error.
            Err(error) => {
                let broken = "trying attention on warpgroup instructions, which `Cuda::with_wgmma(false)` leaves out in a new process";
                self.stream.synchronize().map_err(failure(broken))?;
                return Ok(Some(error.to_string()));
            }
        };
        let outputs = largest_difference(found.outputs.iter().zip(&expected.outputs));
        let logarithms = largest_difference(found.logarithms.iter().zip(&expected.logarithms));
        let allowed = allowed(self.half);
        let differs = |what, found: f32, allowed: f32| {
            let agrees = found <= allowed;
            (!agrees).then(|| format!("{what} differ by {found:e}, where roundings explain {allowed:e}"))
        };
        Ok(differs("outputs", outputs, allowed).or(differs("logarithms of sums", logarithms, LOGARITHMS)))
    }

    /// True if the second kernel takes less time than the first.
    fn is_faster(&mut self, launch: &Launch, placed: &Placed, both: &[BoundKernel; 2]) -> Result<bool, Error> {
        self.fill(launch, placed)?;
        let mut race = Race::new(self.stream, true);
        for index in 0..both.len() {
            if let Some(winner) = race.enter(index, |&index| both[index].launch(self.stream))? {
                return Ok(winner == 1);
            }
        }
        Ok(race.winner() == Some(1))
    }

    /// Writes numbers to the inputs of a launch.
    fn fill(&mut self, launch: &Launch, placed: &Placed) -> Result<(), Error> {
        let period: Vec<u8> = (0..PERIOD).flat_map(|at| self.half.narrow(number(at)).to_le_bytes()).collect();
        let inputs: BTreeSet<Argument> = launch.arguments.iter().take(3).flatten().copied().collect();
        inputs.into_iter().try_for_each(|input| {
            let (offset, bytes) = place(placed, input)?;
            let numbers: Vec<u8> = period.iter().copied().cycle().take(length(bytes)?).collect();
            self.transfers.write(self.arena, offset, None, &numbers)
        })
    }

    /// Runs a kernel, and returns what it has written. What it has not written is NaN.
    fn results(&mut self, launch: &Launch, placed: &Placed, kernel: &BoundKernel) -> Result<Results, Error> {
        let [_, _, _, _, _, _, Some(outputs), logarithms] = launch.arguments[..] else {
            return Err(Error::Damaged("a launch of attention has other arguments"));
        };
        let written: Vec<(u64, u64)> =
            [Some(outputs), logarithms].into_iter().flatten().map(|it| place(placed, it)).collect::<Result<_, _>>()?;
        for &(offset, bytes) in &written {
            self.transfers.write(self.arena, offset, None, &vec![0xff; length(bytes)?])?;
        }
        kernel.launch(self.stream)?;
        let mut read = written.into_iter().map(|(offset, bytes)| {
            let mut found = vec![0; length(bytes)?];
            self.transfers.read(self.arena, offset, &mut found)?;
            Ok::<Vec<u8>, Error>(found)
        });
        let [outputs, logarithms] = [read.next(), read.next()].map(|it| it.unwrap_or(Ok(Vec::new())));
        let half = |bytes: &[u8; 2]| self.half.widen(u16::from_le_bytes(*bytes));
        Ok(Results {
            outputs: outputs?.as_chunks().0.iter().map(half).collect(),
            logarithms: logarithms?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        })
    }
}

/// Numbers that a forward pass has written.
struct Results {
    outputs: Vec<f32>,
    /// The logarithms of the softmaxes' sums; none if they are not saved.
    logarithms: Vec<f32>,
}

fn length(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| Error::Damaged("a tensor has more bytes than the host can address"))
}

/// Returns the number of an input at an index: between minus and plus [`LARGEST`], as if drawn.
fn number(at: usize) -> f32 {
    // Multiplicative hashing by 2^64 divided by the golden ratio.
    let hash = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let unit = ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
    unit * if (at / STRETCH).is_multiple_of(2) { LARGEST } else { LARGEST / 4.0 }
}

/// Returns the largest difference of two outputs that roundings explain: those of the weights in both kernels, of the output in both, and one more for
/// all in f32. Each is half a unit in the last place, of values up to [`LARGEST`] whose weights add up to 1.
fn allowed(half: Half) -> f32 {
    let roundoff = if half == Half::Bf16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    5.0 * roundoff * LARGEST
}

/// Returns the largest difference of numbers; NaN if one of them is not a number.
fn largest_difference<'n>(pairs: impl Iterator<Item = (&'n f32, &'n f32)>) -> f32 {
    let larger = |largest: f32, apart: f32| if apart.is_nan() || apart > largest { apart } else { largest };
    pairs.map(|(found, expected)| (found - expected).abs()).fold(0.0, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_range() {
        let numbers: Vec<f32> = (0..PERIOD).map(number).collect();
        let largest = |numbers: &[f32]| numbers.iter().fold(0f32, |largest, it| largest.max(it.abs()));
        assert!((3.9..=LARGEST).contains(&largest(&numbers[..STRETCH])));
        assert!((0.9..=LARGEST / 4.0).contains(&largest(&numbers[STRETCH..2 * STRETCH])));
        let mean = numbers.iter().sum::<f32>() / PERIOD as f32;
        assert!(mean.abs() < 0.05, "{mean}");
    }

    #[test]
    fn numbers_that_are_none_differ_from_all() {
        let apart = |found: [f32; 3]| largest_difference(found.iter().zip(&[1.0, 2.0, 3.0]));
        assert_eq!(apart([1.0, 2.5, 3.25]), 0.5);
        assert!(apart([f32::NAN, 2.0, 9.0]).is_nan());
        assert!(apart([1.0, 2.0, f32::NAN]).is_nan());
        assert_eq!(apart([1.0, f32::INFINITY, 3.0]), f32::INFINITY);
    }

    #[test]
    fn more_digits_allow_less() {
        assert_eq!([Half::Bf16, Half::F16].map(allowed), [5.0 / 64.0, 5.0 / 512.0]);
    }
}
