//! Ctrl-C, and other ways to ask a training to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A handle that stops a training after its current step, from a callback or another thread: see
/// [`Trainer::stopper`](crate::Trainer::stopper).
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<AtomicBool>);

impl Stopper {
    /// Asks the training to stop after its current step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// True if there was a request to stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns true if there was a request to stop, and forgets it.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

/// The state of Ctrl-C in this process.
struct CtrlC {
    /// True if Ctrl-C ends the process: no training runs, or one was asked to stop already.
    ends_process: Arc<AtomicBool>,
    /// Trainings that run.
    running: Mutex<usize>,
}

/// Returns the state of Ctrl-C, after installing its handler. `None` if that is not possible.
fn ctrl_c() -> Option<&'static CtrlC> {
    static CTRL_C: OnceLock<Option<CtrlC>> = OnceLock::new();
    let install = || {
        let ends_process = Arc::new(AtomicBool::new(true));
        // The order matters: the first Ctrl-C of a training finds the flag unset, and sets it.
        let interrupt = signal_hook::consts::SIGINT;
        signal_hook::flag::register_conditional_default(interrupt, ends_process.clone()).ok()?;
        signal_hook::flag::register(interrupt, ends_process.clone()).ok()?;
        Some(CtrlC { ends_process, running: Mutex::new(0) })
    };
    CTRL_C.get_or_init(install).as_ref()
}

/// A guard with which Ctrl-C stops a training, until it is dropped. A second Ctrl-C ends the process, as one without a training does.
#[derive(Debug)]
pub(crate) struct Guard(());

impl Guard {
    /// Begins to handle Ctrl-C. `None` if the system does not allow it.
    pub fn new() -> Option<Guard> {
        let ctrl_c = ctrl_c()?;
        let mut running = ctrl_c.running.lock().unwrap_or_else(PoisonError::into_inner);
        if *running == 0 {
            ctrl_c.ends_process.store(false, Ordering::SeqCst);
        }
        *running += 1;
        Some(Guard(()))
    }

    /// True if there was a Ctrl-C.
    pub fn is_interrupted(&self) -> bool {
        ctrl_c().is_some_and(|ctrl_c| ctrl_c.ends_process.load(Ordering::SeqCst))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(ctrl_c) = ctrl_c() {
            let mut running = ctrl_c.running.lock().unwrap_or_else(PoisonError::into_inner);
            *running = running.saturating_sub(1);
            if *running == 0 {
                ctrl_c.ends_process.store(true, Ordering::SeqCst);
            }
        }
    }
}
