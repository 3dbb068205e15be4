//! Failures: damaged files, states of other networks, full disks, processes that are killed.

use gpumem::prelude::*;
use gpumem::{Cpu, Snapshot};
use gpumem_state::{Error, NetState, Progress, SavedState, Saver};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

network! {
    pub struct Small;

    const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, optimizer: AdamW { lr: 0.01 } };

    fn forward(features: Features<8>) -> Logits<3> {
        [Linear(16, name = "hidden"), Relu, BatchNorm1d(name = "norm"), Dropout(0.2), Linear(3, name = "head")]
    }
}

/// Networks that differ from `Small` in one thing each.
mod changed {
    pub mod batch {
        use gpumem::prelude::*;
        network! {
            pub struct Small;
            const TRAIN: Train = Train { batch: 8, loss: CrossEntropy, optimizer: AdamW { lr: 0.01 } };
            fn forward(features: Features<8>) -> Logits<3> {
                [Linear(16, name = "hidden"), Relu, BatchNorm1d(name = "norm"), Dropout(0.2), Linear(3, name = "head")]
            }
        }
    }
    pub mod optimizer {
        use gpumem::prelude::*;
        network! {
            pub struct Small;
            const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, optimizer: Sgd { lr: 0.5, momentum: 0.9 } };
            fn forward(features: Features<8>) -> Logits<3> {
                [Linear(16, name = "hidden"), Relu, BatchNorm1d(name = "norm"), Dropout(0.2), Linear(3, name = "head")]
            }
        }
    }
    pub mod layers {
        use gpumem::prelude::*;
        network! {
            pub struct Larger;
            const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, optimizer: AdamW { lr: 0.01 } };
            fn forward(features: Features<8>) -> Logits<7> {
                [
                    Linear(16, name = "hidden"), Relu, BatchNorm1d(name = "norm"), Linear(16, name = "further"), Relu,
                    Linear(7, name = "head"),
                ]
            }
        }
    }
    pub mod nothing {
        use gpumem::prelude::*;
        network! {
            pub struct Other;
            const TRAIN: Train = Train { batch: 4, loss: CrossEntropy, optimizer: AdamW { lr: 0.01 } };
            fn forward(features: Features<8>) -> Logits<7> { [Linear(7, name = "other")] }
        }
    }
}

fn step(net: &mut Net<Small, Cpu>, number: u64) -> f32 {
    let features = Tensor::from_fn(|index| ((number * 37 + index as u64 * 11) % 64) as f32 / 32.0 - 1.0);
    let labels = Tensor::from_fn(|index| ((number + index as u64) % 3) as u32);
    net.train_step(&features, &labels).unwrap()
}

/// Returns a network after some steps, saved twice in a folder.
fn saved(folder: &Path) -> Net<Small, Cpu> {
    let mut net = Small::on(&Cpu::new()).unwrap();
    for number in 0..3 {
        step(&mut net, number);
    }
    net.save_state(folder).unwrap();
    for number in 3..5 {
        step(&mut net, number);
    }
    net.save_state(folder).unwrap();
    net
}

fn newest(folder: &Path, file: &str) -> PathBuf {
    folder.join("step-00000005").join(file)
}

/// Asserts that a state is refused with these words and the network left as it was.
#[track_caller]
fn refused(folder: &Path, words: &[&str]) {
    let mut net = Small::on(&Cpu::new()).unwrap();
    step(&mut net, 9);
    let before = net.snapshot().unwrap();
    let error = net.resume(folder).unwrap_err();
    assert_words(&error, words);
    assert_eq!(net.snapshot().unwrap(), before, "after: {error}");
}

#[track_caller]
fn assert_words(error: &Error, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(format!("{error:?}"), text, "what a `main` that returns it prints");
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn flipped_bits_are_found() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    let mut net = Small::on(&Cpu::new()).unwrap();
    let before = net.snapshot().unwrap();
    for file in ["state.json", "state.safetensors"] {
        let path = newest(folder.path(), file);
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(3) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            let error = net.resume(folder.path()).expect_err(&format!("byte {at} of {file}"));
            assert_words(&error, &[file]);
        }
        for length in [0, 1, 7, 8, 9, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            let error = net.resume(folder.path()).expect_err(&format!("{length} bytes of {file}"));
            assert_words(&error, &[file, "cut off", "take another state, as ", "step-00000003"]);
        }
        fs::write(&path, [&whole[..], b" "].concat()).unwrap();
        assert_words(&net.resume(folder.path()).unwrap_err(), &[file]);
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(net.snapshot().unwrap(), before);
    assert_eq!(net.resume(folder.path()).unwrap().steps, 5);
}

#[test]
fn files_of_two_states_are_not_one() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    fs::copy(folder.path().join("step-00000003/state.safetensors"), newest(folder.path(), "state.safetensors"))
        .unwrap();
    refused(folder.path(), &["state.safetensors has", "of another checksum"]);
}

#[test]
fn folders_without_a_state_are_named() {
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["has no state of a training; save one there with `save_state`"]);
    refused(&folder.path().join("none"), &["none cannot be read", "check the path"]);
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    refused(&file, &["cannot be read", "choose the path of a folder, not of a file"]);
    let error = Saver::open(&file).unwrap_err();
    assert_words(&error, &["file cannot be made", "choose the path of a folder, not of a file"]);
    let error = SavedState::open_marked(folder.path(), "best").unwrap_err();
    assert_words(&error, &["has no state with the mark `best`; `latest` is the newest one"]);
    let error = SavedState::open_marked(folder.path(), "../file").unwrap_err();
    assert_words(&error, &["has no state with the mark `../file`"]);
}

#[test]
fn a_mark_that_leads_nowhere_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    for text in ["", "step-00000099\n", "../../etc", "step-5", "\u{fffd}"] {
        fs::write(folder.path().join("latest"), text).unwrap();
        assert_eq!(SavedState::open(folder.path()).unwrap().numbers().steps, 5, "{text}");
    }
    fs::write(folder.path().join("latest"), vec![b'x'; 1 << 16]).unwrap();
    refused(folder.path(), &["latest cannot be read", "more than 256 bytes"]);
}

#[test]
fn states_of_other_networks_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    let device = Cpu::new();
    let mut net = changed::batch::Small::on(&device).unwrap();
    let error = net.resume(folder.path()).unwrap_err();
    assert_words(
        &error,
        &["is not a state of network `Small`", "batch 4 in the file, 8 in the network", "resume_matching(&mut net)?`"],
    );
    let mut net = changed::optimizer::Small::on(&device).unwrap();
    let error = net.resume(folder.path()).unwrap_err();
    assert_words(
        &error,
        &["optimizer AdamW in the file, Sgd in the network", "missing in the file: ", "head.weight.momentum_buffer"],
    );
    assert_words(&error, &["not in the network: ", "head.bias.exp_avg, head.bias.exp_avg_sq", "and 4 more"]);
    let mut net = changed::layers::Larger::on(&device).unwrap();
    let error = net.resume(folder.path()).unwrap_err();
    assert_words(
        &error,
        &["network Small in the file, Larger in the network", "the layers are others than in the file"],
    );
    assert_words(
        &error,
        &["of another shape or format: `head.weight` (F32 [3, 16] in the file, F32 [7, 16] in the network)"],
    );
}

#[test]
fn a_network_that_changed_takes_what_matches() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = saved(folder.path());
    let device = Cpu::new();
    let state = SavedState::open(folder.path()).unwrap();

    let mut net = changed::layers::Larger::on(&device).unwrap();
    let head = net.get("head.weight").unwrap();
    let resumed = state.resume_matching(&mut net).unwrap();
    assert_eq!(net.get("hidden.weight").unwrap(), old.get("hidden.weight").unwrap());
    assert_eq!(net.get("hidden.weight.exp_avg").unwrap(), old.get("hidden.weight.exp_avg").unwrap());
    assert_eq!(net.get("norm.running_var").unwrap(), old.get("norm.running_var").unwrap());
    assert_eq!(net.get("head.weight").unwrap(), head, "of another shape");
    assert_eq!((resumed.steps, net.steps().unwrap()), (5, 5));
    assert!(resumed.left.contains(&"further.weight.exp_avg_sq".into()) && resumed.left.contains(&"head.bias".into()));
    assert!(resumed.unused.contains(&"head.weight".into()) && !resumed.unused.contains(&"hidden.weight".into()));

    // States of another optimizer would be taken for something else, and so would its steps and rate.
    let mut net = changed::optimizer::Small::on(&device).unwrap();
    let resumed = state.resume_matching(&mut net).unwrap();
    assert_eq!(net.get("head.weight").unwrap(), old.get("head.weight").unwrap());
    assert_eq!((resumed.steps, net.state_numbers().unwrap().lr), (0, 0.5));
    assert!(resumed.left.contains(&"head.weight.momentum_buffer".into()));

    let mut net = changed::batch::Small::on(&device).unwrap();
    assert_eq!(state.resume_matching(&mut net).unwrap().left, Vec::<String>::new());
    assert_eq!(net.snapshot().unwrap().numbers(), old.snapshot().unwrap().numbers());

    let mut net = changed::nothing::Other::on(&device).unwrap();
    assert_words(
        &state.resume_matching(&mut net).unwrap_err(),
        &["has no tensor of network `Other`; resume a network that has some"],
    );
}

/// Rewrites `state.json` with a right checksum, as another program might.
fn rewrite(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    assert!(rest.contains(from), "{from} is not in {rest}");
    let rest = rest.replacen(from, to, 1);
    fs::write(path, format!("{{ \"crc32c\": \"{:08x}\",\n{rest}", crc32c::crc32c(rest.as_bytes()))).unwrap();
}

#[test]
fn numbers_that_no_training_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    let path = newest(folder.path(), "state.json");
    let whole = fs::read(&path).unwrap();
    let cases = [
        ("\"steps\": 5", "\"steps\": 9007199254740992", "9007199254740992 training steps cannot have been made"),
        ("\"steps\": 5", "\"steps\": -5", "cannot be read (invalid value: integer `-5`"),
        ("\"lr\": 0.01", "\"lr\": -0.01", "a learning rate must be 0 or more and finite, not -0.01"),
        ("\"lr\": 0.01", "\"lr\": 1e999", "cannot be read (number out of range"),
        ("\"loss_scale\": 1.0", "\"loss_scale\": 0.0", "a loss scale must be above 0 and finite, not 0"),
        ("\"version\": 1", "\"version\": 2", "has version 2 of the format, and this gpumem reads 1"),
        ("\"version\": 1", "\"version\": {}", "cannot be read (invalid type: map"),
        ("\"network\": \"Small\"", "\"network\": [[[[", "cannot be read"),
        ("\"hidden.bias\"", "\"hidden.base\"", "lacks `hidden.base`"),
        ("\"hidden.bias\": ", "\"a\": \"b\", \"hidden.bias\": ", "lacks `a`"),
    ];
    for (from, to, words) in cases {
        rewrite(&path, from, to);
        refused(folder.path(), &[words]);
        fs::write(&path, &whole).unwrap();
    }
    let text = String::from_utf8(whole).unwrap();
    let line = text.lines().find(|line| line.contains("\"norm.running_var\"")).unwrap();
    rewrite(&path, &format!("{line}\n"), "");
    refused(folder.path(), &["norm.running_var", "state.json` does not name"]);
}

#[test]
fn a_value_that_a_tensor_cannot_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = saved(folder.path());
    let path = newest(folder.path(), "state.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let variance = net.get("norm.running_var").unwrap();
    let old: Vec<u8> = variance.iter().flat_map(|value| value.to_le_bytes()).collect();
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    bytes[at + 3] |= 0x80;
    let sum = |bytes: &[u8]| format!("{:08x}", crc32c::crc32c(bytes));
    let new = sum(&bytes[at..at + old.len()]);
    fs::write(&path, &bytes).unwrap();
    rewrite(&newest(folder.path(), "state.json"), &sum(&old), &new);
    refused(folder.path(), &["norm.running_var", "a variance is 0 or more"]);
}

#[test]
fn one_process_at_a_time_saves_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = saved(folder.path());
    let saver = Saver::open(folder.path()).unwrap();
    assert_eq!(saver.folder(), folder.path());
    assert_words(
        &net.save_state(folder.path()).unwrap_err(),
        &["is in use: another training saves its state there", "save to another folder"],
    );
    drop(saver);
    net.save_state(folder.path()).unwrap();
}

#[test]
fn marks_are_simple_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = Small::on(&Cpu::new()).unwrap();
    let mut saver = Saver::open(folder.path()).unwrap();
    for mark in ["", "a/b", "..", ".lock", "step-1", "ä", &"x".repeat(65)] {
        let error = saver.save_marked(&mut net, &Progress::default(), mark).unwrap_err();
        assert_words(&error, &[&format!("cannot have the mark `{mark}`; use 1 to 64 letters, digits, `_` and `-`")]);
    }
    assert_eq!(saver.wait().unwrap(), None);
}

#[test]
fn there_are_not_endlessly_many_states_of_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let mut net = saved(folder.path());
    fs::rename(folder.path().join("step-00000003"), folder.path().join("step-00000005-4294967295")).unwrap();
    assert_words(&net.save_state(folder.path()).unwrap_err(), &["has too many states of step 5; remove some"]);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut net = Small::on(&Cpu::new()).unwrap();
    let error = net.save_state("/proc/gpumem-state").unwrap_err();
    assert_words(&error, &["/proc/gpumem-state cannot be made", "; "]);
}

#[test]
fn what_an_ended_process_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    fs::create_dir(folder.path().join(".tmp-abc")).unwrap();
    fs::write(folder.path().join(".tmp-abc/state.json"), "{").unwrap();
    fs::write(folder.path().join(".tmp-file"), "{").unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    drop(Saver::open(folder.path()).unwrap().keep(1));
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".tmp-")), "{left:?}");
    assert!(left.iter().any(|name| name == "notes.txt"), "{left:?}");
}

/// The folder that a child process saves to.
const CHILD: &str = "GPUMEM_STATE_TEST_FOLDER";

/// Starts this test program again, to run one of its ignored tests as another process.
fn child(test: &str, folder: &Path, shell: Option<&str>) -> Command {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", test, "--ignored", "--nocapture", "--test-threads=1"];
    let mut command = match shell {
        None => Command::new(&program),
        Some(before) => {
            let mut command = Command::new("bash");
            command.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(&program);
            command
        }
    };
    command.args(arguments).env(CHILD, folder);
    command
}

#[test]
#[ignore = "run by other tests, as a process that is killed"]
fn child_saves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let mut net = Small::on(&Cpu::new()).unwrap();
    net.resume_if_any(&folder).unwrap();
    let mut saver = Saver::open(&folder).unwrap().keep(2);
    for number in net.steps().unwrap().. {
        step(&mut net, number);
        saver.save(&mut net, &Progress { sample: number, ..Progress::default() }).unwrap();
    }
}

/// Kills a process that saves all the time at `moments` moments, and resumes after each.
fn kill(moments: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (mut reference, mut steps) = (Small::on(&Cpu::new()).unwrap(), 0);
    let mut snapshots: Vec<Snapshot> = vec![reference.snapshot().unwrap()];
    let mut good = 0;
    for moment in 0..moments {
        let mut process = child("child_saves_until_it_is_killed", folder.path(), None);
        let mut process = process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Microseconds from 10 ms to 90 ms, in no order.
        std::thread::sleep(Duration::from_micros(10_000 + (moment as u64 * 7_777_777) % 80_000));
        process.kill().unwrap();
        process.wait().unwrap();
        let mut net = Small::on(&Cpu::new()).unwrap();
        let Some(resumed) = net.resume_if_any(folder.path()).unwrap() else { continue };
        assert!(resumed.steps >= steps, "the last good state was lost");
        steps = resumed.steps;
        while (snapshots.len() as u64) <= steps {
            step(&mut reference, snapshots.len() as u64 - 1);
            snapshots.push(reference.snapshot().unwrap());
        }
        assert_eq!(net.snapshot().unwrap(), snapshots[steps as usize], "after {steps} steps");
        good += 1;
    }
    println!("{good} of {moments} times a state was there and good; {steps} steps in all");
    assert!(good * 2 > moments, "the process was killed before it saved: {good} of {moments}");
}

#[test]
fn a_killed_process_leaves_a_good_state() {
    kill(8);
}

#[test]
#[ignore = "half a minute: 200 moments"]
fn two_hundred_killed_processes_leave_good_states() {
    kill(200);
}

#[test]
#[ignore = "run by another test, as a process that may write files of 1 KiB at most"]
fn child_has_no_space() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let mut net = Small::on(&Cpu::new()).unwrap();
    assert_eq!(net.resume(&folder).unwrap().steps, 5);
    let error = net.save_state(&folder).unwrap_err();
    println!("refused: {error}");
    assert_eq!(net.resume(&folder).unwrap().steps, 5);
}

#[test]
fn a_full_disk_leaves_the_states_that_were_there() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path());
    let mut process = child("child_has_no_space", folder.path(), Some("trap '' XFSZ; ulimit -f 1"));
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("cannot be written (File too large"), "{text}");
    assert!(
        text.contains("free some space, or save to another disk; the states that were saved before are whole"),
        "{text}"
    );
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".tmp-")), "{names:?}");
    assert_eq!(SavedState::open(folder.path()).unwrap().numbers().steps, 5);
}
