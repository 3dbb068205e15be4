//! Autotuning: timing the algorithms that a library has for a call, or the kernels that there are for a launch.

use super::driver::elapsed_us;
use crate::error::failure;
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaStream};
use gpumem_core::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most candidates that are timed for a call.
pub(crate) const CANDIDATES: usize = 8;
/// Time after which no further candidate is tried, since a plan may be compiled for each.
const PATIENCE: Duration = Duration::from_secs(2);
/// Runs that are timed as one.
const RUNS: usize = 10;
/// A candidate wins only if its time is below this share of the best time so far. Closer ones keep the library's order.
const BETTER: f64 = 0.97;

/// The best candidate so far.
pub(crate) struct Race<'s, T> {
    stream: &'s Arc<CudaStream>,
    most: usize,
    seen: usize,
    since: Instant,
    best: Option<(f64, T)>,
}

impl<'s, T> Race<'s, T> {
    /// Starts a race. Without `autotune` it ends with the first candidate: the library's own order decides.
    pub(crate) fn new(stream: &'s Arc<CudaStream>, autotune: bool) -> Race<'s, T> {
        let most = if autotune { CANDIDATES } else { 1 };
        Race { stream, most, seen: 0, since: Instant::now(), best: None }
    }

    /// Times a candidate, which has run once already and can run again on the current contents of its tensors. Returns the winner if no further
    /// candidate is to be tried; else `None`.
    ///
    /// # Errors
    /// [`Error::Device`] if a run fails, which breaks the context: no other candidate can be tried.
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

    /// Returns the best candidate so far; `None` if there was none.
    pub(crate) fn winner(self) -> Option<T> {
        self.best.map(|(_, best)| best)
    }

    /// Returns the microseconds of [`RUNS`] runs. They are replayed from a graph, so that the host's calls are not timed; if they cannot be
    /// captured, they run one by one.
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

    /// Returns the runs as a graph; `None` if they cannot be captured.
    fn captured(&self, run: &dyn Fn() -> Result<(), Error>) -> Result<Option<CudaGraph>, Error> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failure("capturing an algorithm"))?;
        let launched = run();
        // The capture ends even if a launch failed, since the stream would be unusable otherwise.
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        Ok(graph.ok().flatten().filter(|_| launched.is_ok()))
    }
}
