//! `watch`, on a stand-in for NVML: what it prints once, and what a terminal shows.

use super::{FIXTURE, alone, clean, fits, text};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/watch");

/// Runs a program that must succeed.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// A process of gpumem, and a folder with the stand-in.
struct Running {
    folder: tempfile::TempDir,
    process: Child,
}

impl Running {
    /// Compiles the stand-in and a program that has the records of the fixture, and starts that.
    fn new() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libnvidia-ml.so.1");
        run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(format!("{SOURCES}/nvml.c")));
        // The build of the fixture leaves its records in the library.
        fits(&["Wide", "--cards", "t4"]);
        let records = records(folder.path(), &FIXTURE.join("target/gpumem/debug/libfixture.rlib"));
        let log = folder.path().join("log.jsonl");
        let line =
            |step: u64, seconds: f64, loss: f64| format!("{{\"loss\":{loss},\"seconds\":{seconds},\"step\":{step}}}\n");
        std::fs::write(&log, line(10, 1.0, 3.5) + &line(20, 3.0, 2.25)).unwrap();
        let program = folder.path().join("train");
        let records = format!("-DRECORDS=\"{}\"", records.display());
        run(Command::new("cc").arg(records).arg("-o").arg(&program).arg(format!("{SOURCES}/waiter.c")));
        let mut process = Command::new(program).arg(log).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Running { folder, process }
    }

    fn watch(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let command = clean(&mut command).args(["gpumem", "watch"]).args(arguments);
        command.env("GPUMEM_CUDA", self.folder.path()).env("STAND_IN_PID", self.process.id().to_string());
        command.output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Returns the files of a folder whose names end so.
fn files_with_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == ending)).collect()
}

/// Writes the records in the objects of a library to one file.
fn records(folder: &Path, library: &Path) -> PathBuf {
    let objects = folder.join("objects");
    std::fs::create_dir(&objects).unwrap();
    run(Command::new("ar").current_dir(&objects).arg("x").arg(library));
    // An object has a section for each record. The linker joins them, as it does in a program.
    let objects = files_with_ending(&objects, "o");
    let (joined, path) = (folder.join("joined.o"), folder.join("records.bin"));
    run(Command::new("ld").args(["-r", "-o"]).arg(&joined).args(&objects));
    run(Command::new("objcopy").args(["-O", "binary", "--only-section=.gpumem"]).arg(&joined).arg(&path));
    assert!(path.metadata().unwrap().len() > 0, "{} has no records", library.display());
    path
}

/// The figures are those of the driver, and the budgets those that `fit` has for the card.
#[test]
fn cards_and_budgets_are_printed_once() {
    let _alone = alone();
    let running = Running::new();
    let output = running.watch(&["--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [card] = value["cards"].as_array().unwrap().as_slice() else { panic!("{value}") };
    assert_eq!((&card["name"], &card["used"]), (&"NVIDIA GeForce RTX 3060".into(), &(3u64 << 30).into()));
    assert_eq!((&card["watts"], &card["celsius"], &card["utilisation"]), (&168.0.into(), &Value::Null, &97.into()));
    let [ours, other] = card["processes"].as_array().unwrap().as_slice() else { panic!("{card}") };
    assert_eq!(
        (&ours["pid"], &ours["name"], &ours["used"]),
        (&running.process.id().into(), &"train".into(), &(300u64 << 20).into())
    );
    assert_eq!(
        (&other["used"], &other["name"], &other["programs"]),
        (&Value::Null, &Value::Null, &Value::Array(vec![]))
    );
    assert_eq!(
        (&ours["log"]["step"], &ours["log"]["loss"], &ours["log"]["steps_a_second"]),
        (&20.into(), &2.25.into(), &5.0.into())
    );
    let wide = ours["programs"].as_array().unwrap().iter().find(|it| it["network"] == "Wide").unwrap();
    let shown = run(clean(&mut Command::new(env!("CARGO_BIN_EXE_cargo-gpumem")))
        .args(["gpumem", "show", "--quiet", "Wide", "--format", "json"]));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(wide["budget"]["arena"], shown["budget"]["arena"]);
    let total = wide["total"].as_i64().unwrap();
    assert_eq!(wide["difference"].as_i64(), Some((300 << 20) - total));
    let printed = text(&running.watch(&["--once"]).stdout);
    let first = "0 NVIDIA GeForce RTX 3060: 3.00 GiB of 12.00 GiB, 97 %, 168 of 170 W\n";
    assert!(printed.starts_with(first), "{printed}");
    assert!(
        printed.contains("Wide, train, batch 8, F32") && printed.contains("step 20, loss 2.2500, 40.0 samples/s"),
        "{printed}"
    );
    // In a pipe it ends as well.
    assert_eq!(text(&running.watch(&[]).stdout), printed);
}

#[test]
fn a_computer_without_the_driver_is_told_what_to_install() {
    let watch = |variables: &[(&str, &Path)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        command.args(["gpumem", "watch", "--once"]).env_remove("GPUMEM_CUDA").envs(variables.iter().copied());
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    // A computer with the driver has an answer.
    let (code, message) = watch(&[]);
    if code != Some(0) {
        assert_eq!(code, Some(2));
        for part in ["cannot load libnvidia-ml.so.1 (", "libnvidia-compute-VERSION", "`GPUMEM_CUDA` names a folder"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    run(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(format!("{SOURCES}/nvml.c")));
    let (code, message) = watch(&[("GPUMEM_CUDA", folder.path()), ("STAND_IN_NO_DRIVER", Path::new("1"))]);
    assert_eq!(code, Some(2));
    for part in ["libnvidia-ml.so.1 is there, but the driver does not answer (", "`sudo modprobe nvidia`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// The screen of tmux shows the card, a key shows the budget, and another ends the command and leaves the terminal as it was.
#[test]
fn a_terminal_shows_cards_until_a_key_ends_it() {
    if Command::new("tmux").arg("-V").output().is_err() {
        assert!(std::env::var_os("GPUMEM_REQUIRE_TMUX").is_none(), "tmux is not installed");
        eprintln!("tmux is not installed; nothing was tested");
        return;
    }
    let _alone = alone();
    let running = Running::new();
    let socket = running.folder.path().join("tmux");
    let tmux = |arguments: &[&str]| run(Command::new("tmux").arg("-S").arg(&socket).args(arguments)).stdout;
    let command = format!(
        "GPUMEM_CUDA='{}' STAND_IN_PID={} '{}' gpumem watch --interval 0.2; echo ended with $?; cat",
        running.folder.path().display(),
        running.process.id(),
        env!("CARGO_BIN_EXE_cargo-gpumem")
    );
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "40", "sh", "-c", &command]);
    let shows = |part: &str| {
        let start = Instant::now();
        loop {
            let screen = text(&tmux(&["capture-pane", "-p"]));
            if screen.contains(part) {
                return screen;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no `{part}`: {screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let screen = shows("train  measured 300.0 MiB");
    for part in [
        " 0 NVIDIA GeForce RTX 3060 ",
        "3.00 GiB of 12.00 GiB",
        "Wide, train, batch 8, F32",
        "step 20, loss 2.2500",
        "not gpumem",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    tmux(&["send-keys", "Enter"]);
    shows("activations");
    tmux(&["send-keys", "q"]);
    let screen = shows("ended with 0");
    assert!(!screen.contains("measured"), "{screen}");
    tmux(&["kill-server"]);
}
