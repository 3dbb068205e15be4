//! Logs: what is written, what a resume removes, and what cannot be written.

mod common;

use common::{Line, Points, loader, points, sums};
use gpumem::Cpu;
use gpumem_data::LoaderOf;
use gpumem_train::log::{Csv, JsonLines, TensorBoard};
use gpumem_train::metrics::{Accuracy, ConfusionMatrix};
use gpumem_train::{Every, Trainer};
use serde_json::Value;
use std::fs;
use std::path::Path;

#[test]
fn json_lines_have_steps_and_evaluations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/log.jsonl");
    let mut net = Points::on(&Cpu::new()).unwrap();
    let report = Trainer::new(&mut net)
        .epochs(1)
        .validate(points(19, 2))
        .metrics(Accuracy::new())
        .metrics(ConfusionMatrix::new())
        .log(JsonLines::new(&path))
        .log_every(4)
        .on_epoch(|context| {
            context.log("nothing", f64::NAN);
            Ok(())
        })
        .quiet()
        .run(&mut loader(61))
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["step"], &lines[0]["epoch"], &lines[0]["lr"]), (&4.into(), &0.into(), &0.02.into()));
    assert!(lines[0]["loss"].as_f64().unwrap() > 0.0 && lines[0]["seconds"].is_number());
    let evaluation = &lines[2];
    let last = report.last.unwrap();
    for name in ["train_loss", "val_loss", "val_accuracy"] {
        assert_eq!(evaluation[name].as_f64(), last.get(name), "{name}");
    }
    assert_eq!((&evaluation["step"], &evaluation["nothing"]), (&8.into(), &Value::Null));
    let rows = evaluation["val_confusion"].as_array().unwrap();
    let sum: u64 = rows.iter().flat_map(|row| row.as_array().unwrap()).map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((rows.len(), sum), (3, 19));
}

#[test]
fn the_logged_rate_is_that_of_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let mut net = Line::on(&Cpu::new()).unwrap();
    net.set_lr(0.05).unwrap();
    let mut data = LoaderOf::<Line>::new(sums(24, 1)).workers(1);
    Trainer::new(&mut net)
        .epochs(1)
        .log(Csv::new(&path).column("half, or \"so\""))
        .log_every(1)
        .evaluate_every(Every::Steps(100))
        .on_step(|context| {
            if context.step() == 2 {
                context.set_lr(0.025)?;
                context.log("half, or \"so\"", 0.5);
            }
            Ok(())
        })
        .quiet()
        .run(&mut data)
        .unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(text.lines().next(), Some("step,epoch,seconds,loss,lr,train_loss,\"half, or \"\"so\"\"\""));
    let columns = |index: usize| lines.iter().map(|line| line[index]).collect::<Vec<_>>();
    assert_eq!((columns(0), columns(4)), (vec!["1", "2", "3"], vec!["0.05", "0.05", "0.025"]));
    assert_eq!((columns(5), columns(6)), (vec![""; 3], vec!["", "0.5", ""]));
}

/// A crash at step 13, and a training that goes on from step 8. With `GPUMEM_EVENTS=FOLDER`, `scripts/goldens/events.py` reads the files.
#[test]
fn each_run_has_an_event_file() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("GPUMEM_EVENTS").map_or(temporary.path().join("events"), Into::into);
    for crashes in [true, false] {
        let mut net = Points::on(&Cpu::new()).unwrap();
        let result = Trainer::new(&mut net)
            .max_steps(24)
            .validate(points(19, 2))
            .metrics(ConfusionMatrix::new())
            .log(TensorBoard::new(&folder).histograms())
            .log_every(1)
            .checkpoint(temporary.path().join("states"), Every::Steps(8))
            .resume_if_any()
            .on_step(|context| if crashes && context.step() == 13 { Err("a crash")? } else { Ok(()) })
            .quiet()
            .run(&mut loader(61));
        assert_eq!(result.is_err(), crashes);
    }
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2);
    for bytes in files.iter().map(|file| fs::read(file).unwrap()) {
        for text in ["brain.Event:2", "train_loss", "val_confusion", "linear[0].weight"] {
            assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        }
    }
}

#[test]
fn a_network_that_trains_on_keeps_its_curves() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Points::on(&Cpu::new()).unwrap();
    for steps in [3, 5] {
        Trainer::new(&mut net)
            .max_steps(steps)
            .log(TensorBoard::new(folder.path()))
            .quiet()
            .run(&mut loader(61))
            .unwrap();
    }
    let mut files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    // Of an event, the field of the step and a session that starts: TensorBoard drops this step and later ones.
    for (file, first) in files.iter().zip([0, 4]) {
        let start = [0x10, first, 0x3a, 2, 8, 1];
        let bytes = fs::read(file).unwrap();
        assert!(bytes.windows(start.len()).any(|window| window == start), "{first}");
    }
}

/// Trains four steps with a log and a checkpoint, and four more that go on.
fn resumed(folder: &Path, damage: impl Fn()) -> Result<(), gpumem_train::Error> {
    for steps in [4, 8] {
        let mut net = Line::on(&Cpu::new()).unwrap();
        let mut data = LoaderOf::<Line>::new(sums(64, 1)).workers(1);
        Trainer::new(&mut net)
            .max_steps(steps)
            .log(JsonLines::new(folder.join("log.jsonl")))
            .log(Csv::new(folder.join("log.csv")))
            .log_every(1)
            .checkpoint(folder.join("states"), Every::Epoch)
            .resume_if_any()
            .quiet()
            .run(&mut data)?;
        damage();
    }
    Ok(())
}

#[test]
fn files_that_are_no_logs_are_left_alone() {
    let cases = [
        ("log.jsonl", "[]\n", "line 1 is no JSON object with a `step`; move the file away, and a new one is begun"),
        (
            "log.jsonl",
            "{\"step\":1}\n{}\n",
            "line 2 is no JSON object with a `step`; move the file away, and a new one is begun",
        ),
        (
            "log.csv",
            "a,b\n",
            "the columns are `a,b`, and this training logs `step,epoch,seconds,loss,lr,train_loss`; move the file away, and a new one is begun",
        ),
        (
            "log.csv",
            "step,epoch,seconds,loss,lr,train_loss\nx\n",
            "line 2 begins with no step; move the file away, and a new one is begun",
        ),
    ];
    for (name, text, message) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let error = resumed(folder.path(), || fs::write(&path, text).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: {message}", path.display()));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let error = resumed(folder.path(), || fs::write(&path, b"\xff\xfe\n").unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("`{}`: line 1 is no text, so this is no log; move the file away", path.display())
    );
    let error = resumed(&folder.path().join("long"), || {
        let file = fs::File::create(folder.path().join("long/log.jsonl")).unwrap();
        file.set_len(1 << 27).unwrap();
    })
    .unwrap_err();
    assert!(
        error.to_string().ends_with("line 1 has more than 67108864 bytes, so this is no log; move the file away"),
        "{error}"
    );
}

#[test]
fn a_log_that_was_removed_is_begun_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    resumed(folder.path(), || {
        let _ = fs::remove_file(&path);
        fs::write(folder.path().join("log.jsonl"), "").unwrap();
    })
    .unwrap();
    assert!(!path.exists());
    resumed(folder.path(), || {}).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "step,epoch,seconds,loss,lr,train_loss\n");
}

#[test]
fn what_cannot_be_written_is_an_error_that_leaves_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let mut net = Points::on(&Cpu::new()).unwrap();
    let inside = file.join("log.csv");
    let error = Trainer::new(&mut net).epochs(1).log(Csv::new(&inside)).quiet().run(&mut loader(16)).unwrap_err();
    assert!(error.to_string().starts_with(&format!("`{}`: cannot be written (", file.display())), "{error}");
    assert_eq!(net.steps().unwrap(), 0);

    let path = folder.path().join("log.csv");
    let error = Trainer::new(&mut net)
        .epochs(1)
        .log(Csv::new(&path))
        .on_epoch(|context| {
            context.log("x", 1.0);
            Ok(())
        })
        .quiet()
        .run(&mut loader(16))
        .unwrap_err();
    let message =
        format!("`{}`: there is no column for `x`; add it with `.column(\"x\")`, or log JSON lines", path.display());
    assert_eq!((error.to_string(), net.steps().unwrap()), (message, 2));
}

#[test]
fn a_log_must_be_started() {
    use gpumem_train::log::Logger;

    let folder = tempfile::tempdir().unwrap();
    // Records come from trainers alone, so one is taken from a log of one's own.
    struct Relay<L>(L, Option<String>);
    impl<L: Logger> Logger for Relay<L> {
        fn begin(&mut self, _: &gpumem_train::log::Begin<'_>) -> gpumem_train::Result<()> {
            Ok(())
        }
        fn record(&mut self, record: &gpumem_train::log::Entry<'_>) -> gpumem_train::Result<()> {
            self.1 = self.0.record(record).err().map(|error| error.to_string());
            self.0.record(record)
        }
    }
    let what = "the log was not started; give it to a trainer, or call `begin` first";
    let mut net = Points::on(&Cpu::new()).unwrap();
    let mut run = |path: &Path, log: Box<dyn Logger>| {
        struct Boxed(Box<dyn Logger>);
        impl Logger for Boxed {
            fn begin(&mut self, begin: &gpumem_train::log::Begin<'_>) -> gpumem_train::Result<()> {
                self.0.begin(begin)
            }
            fn record(&mut self, record: &gpumem_train::log::Entry<'_>) -> gpumem_train::Result<()> {
                self.0.record(record)
            }
        }
        let error =
            Trainer::new(&mut net).epochs(1).log_every(1).log(Boxed(log)).quiet().run(&mut loader(16)).unwrap_err();
        assert_eq!(error.to_string(), format!("`{}`: {what}", path.display()));
    };
    let path = folder.path().join("log.jsonl");
    run(&path, Box::new(Relay(JsonLines::new(&path), None)));
    let path = folder.path().join("events");
    run(&path, Box::new(Relay(TensorBoard::new(&path), None)));
}
