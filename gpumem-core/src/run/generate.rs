//! Generation of a sequence token by token, with a cache of keys and values on the device.

use super::device::{Device, Runner};
use super::net::Net;
use crate::error::Error;
use crate::memory::place::Placed;
use crate::network::{Generate, Network};
use crate::program::indices::Indices;
use crate::program::{Class, StateWord};
use crate::run::cache_state::CacheState;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// The words for the given tokens in messages.
const LIST: &str = "each sample's list of tokens";

/// Returns the most likely token: the index of the largest logit, the first of several.
pub fn greedy(logits: &[f32]) -> u32 {
    let larger = |best: usize, index: usize| if logits[index] > logits[best] { index } else { best };
    (0..logits.len()).reduce(larger).unwrap_or(0) as u32
}

/// A token of every sample, and the logits that it was chosen from: see [`Net::generate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The token of each sample.
    pub tokens: Vec<u32>,
    /// The logits that the tokens were chosen from: `[samples, classes]`, in row-major order.
    pub logits: Vec<f32>,
}

/// The tokens that continue a sequence, one of each sample at a time: see [`Net::generate`].
pub struct Generation<'n, N, D: Device, C> {
    net: &'n mut Net<N, D>,
    choose: C,
    /// The logits after the prompt. `None` once they have been returned.
    first: Option<Vec<f32>>,
    tokens: Vec<u32>,
    has_failed: bool,
}

impl<N, D: Device, C> fmt::Debug for Generation<'_, N, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

impl<N: Generate, D: Device, C: FnMut(&[f32]) -> u32> Iterator for Generation<'_, N, D, C> {
    type Item = Result<Generated, Error>;

    fn next(&mut self) -> Option<Result<Generated, Error>> {
        let logits = match self.first.take() {
            Some(logits) => logits,
            None if self.has_failed || self.net.cached() == self.net.kept.most => return None,
            None => {
                let tokens: Vec<&[u32]> = self.tokens.iter().map(core::slice::from_ref).collect();
                match self.net.extend(&tokens) {
                    Ok(logits) => logits,
                    Err(error) => {
                        self.has_failed = true;
                        return Some(Err(error));
                    }
                }
            }
        };
        let classes = logits.len() / self.net.samples().max(1);
        self.tokens = logits.chunks(classes.max(1)).map(&mut self.choose).collect();
        Some(Ok(Generated { tokens: self.tokens.clone(), logits }))
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Continues a prompt: an iterator over tokens, each with the logits that `choose` chose it from. There must be a prompt for each
    /// sample of the batch of `INFER`, all of one length; the cache is emptied first. Tokens are computed lazily. The iterator ends when
    /// the cache is full, and after an error.
    ///
    /// ```ignore
    /// let mut net = Gpt::infer_on(&device)?;
    /// for next in net.generate(&[&prompt], greedy)?.take(100) {
    ///     print(next?.tokens[0]);
    /// }
    /// ```
    ///
    /// # Errors
    /// As for [`Net::extend`].
    pub fn generate<C: FnMut(&[f32]) -> u32>(
        &mut self,
        prompts: &[&[u32]],
        choose: C,
    ) -> Result<Generation<'_, N, D, C>, Error>
    where
        N: Generate,
    {
        self.kept.steps = 0;
        let first = Some(self.extend(prompts)?);
        Ok(Generation { net: self, choose, first, tokens: Vec::new(), has_failed: false })
    }

    /// Returns the time steps in the cache: 0 after a parameter was set, since cached values would be those of the old parameters.
    pub fn cached(&self) -> u64
    where
        N: Generate,
    {
        self.kept.steps
    }

    /// Forgets all time steps from `steps` on, so that the sequence can continue differently: `truncate(0)` begins a new one. If there are
    /// not so many, nothing changes.
    ///
    /// # Errors
    /// [`Error::Rewind`] if a layer keeps a state of all steps so far, as [`SelectiveScan`](crate::layers::SelectiveScan) does: it can go
    /// back to the beginning only. Nothing is forgotten then.
    pub fn truncate(&mut self, steps: u64) -> Result<(), Error>
    where
        N: Generate,
    {
        let CacheState { steps: cached, has_states, .. } = self.kept;
        if has_states && 0 < steps && steps < cached {
            return Err(Error::Rewind { steps, cached });
        }
        self.kept.steps = cached.min(steps);
        Ok(())
    }

    /// Takes more tokens of the sequence, and returns the logits after the last one: `[samples, classes]`, in row-major order. Each sample
    /// has equally many tokens, which are read `chunk` of `INFER` at a time. Together with earlier ones they must not be more than `cache`
    /// of `INFER`.
    ///
    /// # Errors
    /// [`Error::Length`] for another number of samples, no tokens, samples of different lengths, or more tokens than fit the cache;
    /// [`Error::Index`] for a token beyond the table. The cache is then unchanged. It is unchanged after a failure of the device too, but
    /// empty if [`Net::truncate`] cannot go back.
    pub fn extend(&mut self, tokens: &[&[u32]]) -> Result<Vec<f32>, Error>
    where
        N: Generate,
    {
        let count = self.checked(tokens)?;
        let first = self.kept.steps;
        // A network that cannot go back loses the sequence if a pass fails.
        self.kept.steps = if self.kept.has_states { 0 } else { first };
        let logits = self.passes(tokens, count, first)?;
        self.kept.steps = first + count as u64;
        Ok(logits)
    }

    /// Runs all passes over these tokens, which follow `first` time steps, and returns the logits after the last one.
    fn passes(&mut self, tokens: &[&[u32]], count: usize, first: u64) -> Result<Vec<f32>, Error> {
        let mut done = 0;
        loop {
            let left = count - done;
            let is_single = left == 1 && self.served.is_some();
            let chunk = if is_single { 1 } else { self.kept.chunk as usize };
            let taken = left.min(chunk);
            let mut words = vec![0; tokens.len() * chunk];
            for (words, tokens) in words.chunks_exact_mut(chunk).zip(tokens) {
                words[..taken].copy_from_slice(&tokens[done..done + taken]);
            }
            self.pass(&words, [first + done as u64, taken as u64], is_single)?;
            done += taken;
            if done == count {
                return self.last_logits(is_single, chunk, taken - 1);
            }
        }
    }
}

impl<N: Network, D: Device> Net<N, D> {
    /// Returns the samples of the batch of `INFER`.
    fn samples(&self) -> usize {
        N::INFERENCE.batch as usize
    }

    /// Returns the number of tokens of each sample. Refuses tokens that cannot be added to the cache.
    fn checked(&self, tokens: &[&[u32]]) -> Result<usize, Error> {
        let length = |what: &str, expected: u64, found: usize| {
            Err(Error::Length { what: String::from(what), expected, found: found as u64 })
        };
        if tokens.len() != self.samples() {
            return length("the list of samples", self.samples() as u64, tokens.len());
        }
        let count = tokens.first().map_or(0, |tokens| tokens.len());
        if count == 0 {
            return length(LIST, 1, 0);
        }
        if let Some(other) = tokens.iter().find(|other| other.len() != count) {
            return length(LIST, count as u64, other.len());
        }
        let room = self.kept.most - self.kept.steps;
        if count as u64 > room {
            let what = alloc::format!("the rest of the cache ({} steps)", self.kept.most);
            return Err(Error::Length { what, expected: room, found: count as u64 });
        }
        // Check all tokens before the first pass, since a pass may change states that cannot go back. An error names a token by its
        // position in `tokens`.
        let operations = self.infer.program.operations.iter();
        let rules: Vec<Indices> = operations.flat_map(|operation| operation.indices(&self.infer.program)).collect();
        if let Some(rule) = rules.iter().min_by_key(|rule| rule.limit) {
            rule.check(tokens.iter().copied().flatten().copied())?;
        }
        Ok(count)
    }

    /// Returns the program of one time step, or of a chunk.
    fn program(&self, is_single: bool) -> &Placed {
        match &self.served {
            Some(single) if is_single => &single.placed,
            _ => &self.infer,
        }
    }

    /// Runs a program on these tokens, `at` time steps after the beginning. The first `taken` of each sample belong to the sequence; others
    /// are padding.
    fn pass(&mut self, words: &[u32], [at, taken]: [u64; 2], is_single: bool) -> Result<(), Error> {
        let placed = self.program(is_single);
        let lacks = Error::Damaged("the program lacks an input");
        let input = placed.program.of_class(Class::Input).next().ok_or(lacks)?;
        let offset = placed.offsets[input as usize];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.runner.write(offset, &bytes)?;
        self.begin_at(at, taken)?;
        if is_single { self.runner.serve() } else { self.runner.infer() }
    }

    /// Returns the logits of time step `step` of each sample.
    fn last_logits(&mut self, is_single: bool, chunk: usize, step: usize) -> Result<Vec<f32>, Error> {
        let placed = self.program(is_single);
        let output = placed.program.results[0] as usize;
        let tensor = &placed.program.tensors[output];
        let (offset, format, classes) =
            (placed.offsets[output], tensor.role.format(self.precision), tensor.shape.last() as usize);
        let row = classes * format.bytes() as usize;
        let mut logits = Vec::with_capacity(self.samples() * classes);
        let mut bytes = vec![0; row];
        for sample in 0..self.samples() {
            self.runner.read(offset + ((sample * chunk + step) * row) as u64, &mut bytes)?;
            logits.extend(format.decode(&bytes));
        }
        Ok(logits)
    }
}

impl<N, D: Device> Net<N, D> {
    /// Writes two counts to the device: time steps before this pass, and steps of the pass that belong to the sequence.
    pub(super) fn begin_at(&mut self, step: u64, at_hand: u64) -> Result<(), Error> {
        let program = &self.infer.program;
        // A network without attention and positions does not read it.
        let Some(state) = program.state() else { return Ok(()) };
        let offset = self.infer.offsets[state as usize];
        const { assert!(StateWord::Step as usize == 0 && StateWord::AT_HAND == 2) };
        let mut words = step.to_le_bytes().to_vec();
        // Only states read the number of steps in this pass.
        if self.kept.has_states {
            words.extend((at_hand as u32).to_le_bytes());
        }
        self.runner.write(offset, &words)
    }
}
