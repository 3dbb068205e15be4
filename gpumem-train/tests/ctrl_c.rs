//! Ctrl-C in a process of its own.
#![cfg(unix)]

mod common;

use common::{Points, loader};
use gpumem::Cpu;
use gpumem_state::SavedState;
use gpumem_train::{Every, Stop, Trainer};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Names the folder of a process that trains, and how it goes on.
const FOLDER: &str = "GPUMEM_TRAIN_TEST_FOLDER";
const HANGS: &str = "GPUMEM_TRAIN_TEST_HANGS";

/// The number of SIGINT.
const INTERRUPT: i32 = 2;

/// Trains in a process that another test started; does nothing by itself.
#[test]
fn trains_until_it_is_interrupted() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let hangs = std::env::var_os(HANGS).is_some();
    let mut net = Points::on(&Cpu::new()).unwrap();
    let report = Trainer::new(&mut net)
        .max_steps(1 << 40)
        .checkpoint(Path::new(&folder), Every::Epoch)
        .keep(2)
        .quiet()
        .on_step(|context| {
            if context.step() == 3 {
                println!("trains");
            }
            if hangs && context.step() == 4 {
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
            Ok(())
        })
        .run(&mut loader(61))
        .unwrap();
    assert_eq!(report.stop, Stop::Interrupted);
    println!("interrupted after {}", report.steps);
    // No training runs: Ctrl-C ends the process, as it does without this crate.
    std::thread::sleep(std::time::Duration::from_secs(60));
}

fn start(folder: &Path, hangs: bool) -> (Child, impl FnMut(&str) -> String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "trains_until_it_is_interrupted", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped());
    if hangs {
        command.env(HANGS, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let wait_for = move |text: &str| {
        let line = lines.by_ref().map(|line| line.unwrap()).find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("no line with {text}"))
    };
    (child, wait_for)
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn the_first_ctrl_c_saves_and_the_next_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut wait_for) = start(folder.path(), false);
    wait_for("trains");
    interrupt(&child);
    let line = wait_for("interrupted after ");
    let steps: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(SavedState::open(folder.path()).unwrap().numbers().steps, steps);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().signal(), Some(INTERRUPT));
}

#[test]
fn a_second_ctrl_c_ends_a_step_that_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut wait_for) = start(folder.path(), true);
    wait_for("trains");
    std::thread::sleep(std::time::Duration::from_millis(200));
    interrupt(&child);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(child.try_wait().unwrap(), None);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().signal(), Some(INTERRUPT));
}
