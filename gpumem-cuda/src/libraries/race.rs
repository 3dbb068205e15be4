//! Algorithms that a library has for a call, timed on the card.

use super::driver::elapsed_us;
use crate::error::failure;
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use gpumem_core::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Candidates that are timed for a call, at most.
pub(crate) const CANDIDATES: usize = 8;
/// Time after which no further candidate is tried: a plan may be compiled for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Runs that are timed together.
const RUNS: usize = 10;
/// What a candidate's time must be below, as a share of the best one's: closer ones stay in the library's order.
const BETTER: f64 = 0.97;

/// The best of the candidates of a library that have been seen.
pub(crate) struct Race<'s, T> {
    stream: &'s Arc<CudaStream>,
    most: usize,
    seen: usize,
    since: Instant,
    best: Option<(f64, T)>,
}

impl<'s, T> Race<'s, T> {
    /// Without `autotune` it ends with the first candidate: the library's own order decides.
    pub(crate) fn new(stream: &'s Arc<CudaStream>, autotune: bool) -> Race<'s, T> {
        let most = if autotune { CANDIDATES } else { 1 };
        Race { stream, most, seen: 0, since: Instant::now(), best: None }
    }

    /// Takes a candidate, which has run once and can run again on what it finds. The winner, if no further one is to be tried.
    ///
    /// # Errors
    /// [`Error::Device`] if a run fails, which breaks the context: there is nothing else to try.
    pub(crate) fn enter(&mut self, candidate: T, run: impl Fn(&T) -> Result<(), Error>) -> Result<Option<T>, Error> {
        if self.most == 1 {
            return Ok(Some(candidate));
        }
        self.seen += 1;
        let time = self.time(|| run(&candidate))?;
        if self.best.as_ref().is_none_or(|(best, _)| time < best * BETTER) {
            self.best = Some((time, candidate));
        }
        let is_over = self.seen == self.most || self.since.elapsed() > PATIENCE;
        Ok(if is_over { self.best.take().map(|(_, best)| best) } else { None })
    }

    /// The best of those that have been seen.
    pub(crate) fn winner(self) -> Option<T> {
        self.best.map(|(_, best)| best)
    }

    /// Microseconds of some runs. They are replayed from a graph, so that the time of the host's calls is not theirs; one by one where
    /// they cannot be captured.
    fn time(&self, run: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        let all = || (0..RUNS).try_for_each(|_| run());
        let graph = self.captured(&all)?;
        let runs = || match &graph {
            Some(graph) => graph.launch().map_err(failure("timing an algorithm")),
            None => all(),
        };
        let event = || {
            let event = self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(failure("recording an event"))
        };
        runs()?;
        let start = event()?;
        runs()?;
        elapsed_us(&start, &event()?)
    }

    /// The runs as a graph, if they can be one.
    fn captured(&self, run: &dyn Fn() -> Result<(), Error>) -> Result<Option<CudaGraph>, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failure("capturing an algorithm"))?;
        let launched = run();
        // The capture ends even if a launch failed: the stream is of no use otherwise.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        Ok(graph.ok().flatten().filter(|_| launched.is_ok()))
    }
}
