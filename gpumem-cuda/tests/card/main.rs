//! What only a card can show. On a machine without one these tests say so and pass, unless `GPUMEM_REQUIRE_GPU=1`.
//!
//! | file | what it checks |
//! | --- | --- |
//! | `curves` | 20 training steps against PyTorch's curves and the CPU backend's |
//! | `replay` | the replayed graph against operation by operation, to the bit |
//! | `attention` | the time of attention's forward pass by each kernel that the card has for it |
//! | `profile` | the time of each launch by itself, the nodes of graphs, what the card says of itself |
//! | `refusal` | too little free memory: an error with figures, and nothing broken after it |
//! | `ranks` | two ranks on one card against the CPU's ranks |
//! | `exact` | bytes on the card against the lines of the budget; no allocation after start-up |
//!
//! One test runs at a time, and what reads the environment or must begin without a context runs in a process of its own.

#[path = "../../../gpumem-cpu/tests/harness/mod.rs"]
mod harness;

mod attention;
mod curves;
mod exact;
mod profile;
mod ranks;
mod refusal;
mod replay;
mod smi;

use gpumem_cuda::Cuda;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Free memory and device time belong to one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Set in a process that a test started.
const CHILD: &str = "GPUMEM_CARD_CHILD";

/// The first card for one test alone.
struct Card {
    cuda: Cuda,
    _alone: MutexGuard<'static, ()>,
}

/// The first card, if there is one.
fn card() -> Option<Card> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Cuda::new(0) {
        Ok(cuda) => Some(Card { cuda, _alone: alone }),
        Err(error) => {
            let required = std::env::var_os("GPUMEM_REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "a card was required: {error}");
            eprintln!("not run, there is no card: {error}");
            None
        }
    }
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test of this binary in a process of its own, with these variables, and returns what it printed.
fn child(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--test-threads", "1"])
        .env(CHILD, "1")
        .env("GPUMEM_REQUIRE_GPU", "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} in a process of its own failed:\n{text}\n{errors}");
    assert!(text.contains("1 passed"), "no test is called {test}:\n{text}");
    text
}

#[test]
fn a_process_of_its_own_runs_one_test() {
    if !is_child() {
        assert!(child("a_process_of_its_own_runs_one_test", &[("GPUMEM_GIVEN", "17")]).contains("\ngiven 17\n"));
        return;
    }
    println!("\ngiven {}", std::env::var("GPUMEM_GIVEN").unwrap());
}
