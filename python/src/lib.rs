//! The part of Python's package `gpumem` that plans: a thin layer over the library of `cargo gpumem`.
//!
//! Plans are made in a thread of their own, without Python's lock. So other threads of Python run meanwhile, and Ctrl-C is answered at once.

use cargo_gpumem::{Refused, Request};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

pyo3::create_exception!(
    gpumem,
    Error,
    PyException,
    "A model that cannot be planned. The text says why, and what to do."
);

/// The time between two looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// Bytes of the stack of the thread that plans. That of Python's other threads may be as small as 512 KiB.
const STACK: usize = 64 << 20;

thread_local! {
    /// The text of the last panic of this thread, with its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Plans a model in a file. Returns the answer as JSON, and as a table.
#[pyfunction]
fn fit(
    py: Python<'_>,
    file: String,
    name: Option<String>,
    cards: Vec<String>,
    settings: Vec<(String, String)>,
) -> PyResult<(String, String)> {
    let request = Request { file, name, ..request(cards, settings)? };
    let report = wait(py, move || request.answer())?.map_err(refused)?;
    Ok((report.json, report.table))
}

/// Raises an error if a setting cannot be read.
#[pyfunction]
fn check(cards: Vec<String>, settings: Vec<(String, String)>) -> PyResult<()> {
    request(cards, settings)?.check().map_err(refused)
}

/// Returns a request without a file.
fn request(cards: Vec<String>, settings: Vec<(String, String)>) -> PyResult<Request> {
    let mut request = Request { cards, card_list: Some("`gpumem.cards()`".into()), ..Request::default() };
    for (key, value) in settings {
        let field = match &key[..] {
            "batch" => &mut request.batch,
            "optimizer" => &mut request.optimizer,
            "precision" => &mut request.precision,
            "checkpoint" => &mut request.checkpoint,
            "headroom" => &mut request.headroom,
            "attention" => &mut request.attention,
            "pytorch_update" => &mut request.pytorch_update,
            "pytorch_rules" => &mut request.pytorch_rules,
            "inference" => {
                request.is_for_inference = value == "True";
                continue;
            }
            _ => return Err(PyValueError::new_err(format!("no setting is called {key}"))),
        };
        *field = Some(value);
    }
    Ok(request)
}

fn refused(refused: Refused) -> PyErr {
    match refused {
        Refused::Value { .. } => PyValueError::new_err(refused.to_string()),
        Refused::Failure(why) => Error::new_err(why),
    }
}

/// Returns all cards as JSON.
#[pyfunction]
fn cards() -> String {
    cargo_gpumem::cards()
}

/// Returns a number of bytes for people.
#[pyfunction]
fn bytes(value: u64) -> String {
    cargo_gpumem::bytes(value)
}

/// Works for so many seconds without an answer, or panics for a negative number: how mistakes look is tested with it.
#[pyfunction]
fn _work(py: Python<'_>, seconds: f64) -> PyResult<()> {
    wait(py, move || thread::sleep(Duration::try_from_secs_f64(seconds).expect("a negative time")))
}

/// Runs `work` in a thread of its own, without Python's lock.
///
/// # Errors
/// Ctrl-C was pressed: then the thread goes on, and its answer is dropped. Or `work` panicked, which is a bug.
fn wait<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (sender, receiver) = channel();
    let run = move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        let _ = sender.send(done.map_err(|_| PANIC.take()));
    };
    thread::Builder::new().name("gpumem".into()).stack_size(STACK).spawn(run)?;
    let receiver = Mutex::new(receiver);
    let next = || receiver.lock().map_or(Err(RecvTimeoutError::Disconnected), |it| it.recv_timeout(TICK));
    loop {
        match py.detach(next) {
            Ok(done) => return done.map_err(|panic| bug(&panic)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(bug("the thread that plans has ended")),
        }
    }
}

/// Returns the error for a panic.
fn bug(panic: &str) -> PyErr {
    let repository = env!("CARGO_PKG_REPOSITORY");
    Error::new_err(format!("this is a bug of gpumem: {panic}; please report it with the model at {repository}/issues"))
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A panic is an error of Python, and prints nothing by itself.
    set_hook(Box::new(|panic| PANIC.set(panic.to_string().replace('\n', " "))));
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(fit, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(cards, module)?)?;
    module.add_function(wrap_pyfunction!(bytes, module)?)?;
    module.add_function(wrap_pyfunction!(_work, module)?)
}
