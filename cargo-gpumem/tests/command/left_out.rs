//! Networks and records that a check leaves out, and errors of output.

use super::{FIXTURE, alone, clean, failure, fits, gpumem, line_of, printed, text, write};
use gpumem_core::memory::record;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// CI must not believe that it checked what it did not.
#[test]
fn what_no_card_is_named_for_is_named() {
    let _alone = alone();
    let writer = line_of("const INFER: Infer = Infer { batch: 2, cache");
    let (table, _) = printed(&["fit", "--quiet"]);
    let (_, left_out) = table.split_once("\nleft out ").unwrap_or_else(|| panic!("{table}"));
    let names: Vec<&str> = left_out.lines().skip(2).map(|line| line.split("  ").next().unwrap()).collect();
    let advice = "`--cards t4,l4` asks about cards that no network names, `--all` about all";
    assert_eq!(names, ["Again", "Both", "Writer", "Generic<64>", "Critic", advice], "{table}");
    let row = left_out.lines().find(|line| line.starts_with("Writer ")).unwrap();
    assert!(row.contains(&format!(" src/lib.rs:{writer} ")) && row.ends_with("  names no card"), "{row}");

    let (text, _) = printed(&["fit", "--quiet", "--format", "json"]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let left_out = value["left_out"].as_array().unwrap();
    let named: Vec<_> = left_out.iter().map(|it| (it["network"].as_str().unwrap(), it["program"].as_str())).collect();
    let train = |name| (name, Some("train"));
    assert_eq!(
        named,
        [train("Again"), train("Both"), ("Writer", Some("infer")), train("Generic<64>"), train("Critic")]
    );
    assert_eq!((&left_out[2]["line"], &left_out[2]["package"]), (&writer.into(), &"fixture".into()));
    assert_eq!((&left_out[2]["why"], &value["unreadable"]), (&"names no card".into(), &0.into()));

    let (text, _) = printed(&["fit", "--quiet", "--format", "github"]);
    let warning = format!(
        "::warning file=src/lib.rs,line={writer},title=Writer is left out::`Writer` is left out: names no card\n"
    );
    assert!(text.contains(&warning), "{text}");
    // With cards, nothing is.
    let (text, _) = printed(&["fit", "--quiet", "--cards", "t4"]);
    assert!(!text.contains("left out"), "{text}");
}

/// Cards that `fits!` names are asked about as those of `cards:`.
#[test]
fn what_fits_names_is_answered_for() {
    let _alone = alone();
    let number = |fit: &Value, key: &str| fit[key].as_u64().unwrap();
    let arena = |arguments: &[&str]| {
        let (text, _) = printed(&[&["show", "--quiet", "--format", "json"], arguments].concat());
        serde_json::from_str::<Value>(&text).unwrap()["budget"]["arena"].as_u64().unwrap()
    };
    let all = fits(&[]);
    let of = |name: &str| all.iter().filter(|fit| fit["network"] == name).collect::<Vec<_>>();
    let [t4, l4] = of("Generator + Serving<Critic>")[..] else { panic!("{all:?}") };
    let sum = arena(&["Generator"]) + arena(&["Critic", "--inference"]);
    assert_eq!(number(t4, "total"), sum + number(t4, "reserve"), "{t4}");
    assert!(t4["card"] == "t4" && l4["card"] == "l4" && t4["fits"] == true && t4["program"] == "together", "{t4} {l4}");
    assert_eq!((&t4["networks"][1], &t4["batch"]), (&"Serving<Critic>".into(), &Value::Null));
    assert_eq!(number(t4, "line"), line_of("fits!(Generator") as u64);
    let [small] = of("Generic<32>")[..] else { panic!("{all:?}") };
    assert!(small["card"] == "rtx3060" && small["batch"] == 32 && number(small, "max_batch") > 32, "{small}");
    // A network that is named brings what it is together with, and other cards are asked about it.
    let named = fits(&["Critic", "--cards", "l4,3GiB"]);
    let titles: Vec<&str> = named.iter().map(|fit| fit["network"].as_str().unwrap()).collect();
    let both = "Generator + Serving<Critic>";
    assert_eq!(titles, ["Critic", "Critic", "Critic (inference)", "Critic (inference)", both, both]);
    assert!(fits(&["Generator"]).iter().all(|fit| fit["network"] == both));
    let (table, _) = printed(&["fit", "--quiet", "Generator"]);
    assert!(table.lines().nth(2).unwrap().starts_with("Generator + Serving<Critic>  "), "{table}");
    let (text, _) = printed(&["fit", "--quiet", "Generator", "--format", "github"]);
    assert!(text.contains("title=Generator + Serving<Critic> on T4::`Generator + Serving<Critic>` needs "), "{text}");
}

/// Two packages of a workspace, each with a network of the same name, and a third network.
#[test]
fn networks_of_one_name_are_told_apart() {
    let _alone = alone();
    // This builds the fixture, whose lock file and target folder the workspace below uses: dependencies are built once.
    printed(&["fit", "--quiet", "Wide"]);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-packages");
    let manifest = std::fs::read_to_string(FIXTURE.join("Cargo.toml")).unwrap();
    let dependencies = &manifest[manifest.find("[dependencies]").unwrap()..];
    let dependencies = dependencies.split("\n\n").next().unwrap();
    for package in ["one", "two"] {
        std::fs::create_dir_all(folder.join(package).join("src")).unwrap();
        let head = format!("[package]\nname = \"{package}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n");
        write(&folder.join(package).join("Cargo.toml"), &(head + dependencies + "\n"));
        let network = "gpumem::network! { pub struct Net; const TRAIN: Train = Train { batch: 4, loss: Mse, cards: [T4] }; \
                       fn forward(x: Features<8>) -> Features<8> { [Linear(8)] } }\n";
        write(&folder.join(package).join("src/lib.rs"), network);
    }
    write(&folder.join("Cargo.toml"), "[workspace]\nmembers = [\"one\", \"two\"]\nresolver = \"3\"\n");
    std::fs::copy(FIXTURE.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let asked = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let command = clean(&mut command).current_dir(&folder).arg("gpumem").args(arguments);
        let output = command.env("CARGO_TARGET_DIR", FIXTURE.join("target")).output().unwrap();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (table, errors, code) = asked(&["fit", "--quiet"]);
    assert_eq!(code, Some(0), "{errors}");
    let names: Vec<&str> = table.lines().skip(2).map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["Net (one)", "Net (two)"], "{table}");
    let (json, ..) = asked(&["fit", "--quiet", "--format", "json"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    let packages: Vec<_> =
        value["fits"].as_array().unwrap().iter().map(|fit| (&fit["network"], &fit["package"])).collect();
    assert_eq!(packages, [(&"Net".into(), &"one".into()), (&"Net".into(), &"two".into())]);
    let (_, errors, code) = asked(&["show", "--quiet"]);
    assert!(code == Some(2) && errors.contains("name the network to show: there is Net (one), Net (two)"), "{errors}");
    // In one package there is one: it needs no name.
    let (shown, errors, code) = asked(&["show", "--quiet", "--package", "two"]);
    assert!(code == Some(0) && shown.starts_with("Net: training, batch 4, F32\n"), "{errors}{shown}");
}

/// Output to a full disk is an error and no panic; output to a closed pipe is neither.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_and_a_closed_pipe_is_none() {
    let _alone = alone();
    printed(&["fit", "--quiet", "Wide"]);
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["cards"][..],
        &["cards", "t4"],
        &["cards", "--format", "json"],
        &["fit", "--quiet", "Wide"],
        &["fit", "--quiet", "Wide", "--format", "json"],
        &["fit", "--quiet", "Wide", "--format", "github"],
        &["show", "--quiet", "Wide"],
        &["show", "--quiet", "Wide", "--format", "json"],
        &["fit", "--help"],
        &["--version"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let output = clean(&mut command).arg("gpumem").args(arguments).stdout(full()).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.starts_with("error: cannot write to standard output: "), "{arguments:?}: {errors}");
        // Nobody can be told.
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let status = clean(&mut command).arg("gpumem").args(arguments).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    let status = clean(&mut command).args(["gpumem", "cards", "toaster"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    let command = clean(&mut command).args(["gpumem", "cards"]).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

/// `cargo-gpumem fit` is `cargo gpumem fit`.
#[test]
fn it_runs_without_cargo() {
    let direct = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
        let output = clean(&mut command).args(arguments).output().unwrap();
        (text(&output.stdout), output.status.code())
    };
    assert_eq!(direct(&["cards", "t4"]), (printed(&["cards", "t4"]).0, Some(0)));
    let (help, code) = direct(&["fit", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: cargo gpumem fit"), "{help}");
}

/// Each of these printed every card, or none of what was wrong.
#[test]
fn cards_that_are_none_are_told() {
    for (cards, expected) in [
        ("", "no card is named: write slugs with commas, or sizes, as in t4,11.5GiB"),
        ("t4,", "no card is named: "),
        ("0GiB", "it is less than one byte: write the memory of the card"),
        ("11.5", "the unit is missing: write B, KiB, MiB, GiB"),
        ("k80", "a K80 has compute capability 3.7, and the CUDA backend needs 6.0 or newer"),
    ] {
        let message = failure(&["fit", "--quiet", "--cards", cards]);
        assert!(message.contains(expected) && message.len() < 400, "{cards}: {message}");
    }
    let message = failure(&["fit", "--quiet", "--headroom", "11.5"]);
    assert!(message.contains("the unit is missing: "), "{message}");
}

/// The library of the fixture with a byte of some records changed, while something is asked.
fn with_records<T>(change: impl Fn(&mut [u8]), ask: impl FnOnce() -> T) -> T {
    printed(&["fit", "--quiet", "Wide"]);
    let library = FIXTURE.join("target/gpumem/debug/libfixture.rlib");
    let before = std::fs::read(&library).unwrap();
    let mut bytes = before.clone();
    let places: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&record::MAGIC)).collect();
    places.into_iter().for_each(|at| change(&mut bytes[at..]));
    std::fs::write(&library, bytes).unwrap();
    let answer = ask();
    std::fs::write(&library, before).unwrap();
    answer
}

#[test]
fn what_cannot_be_read_is_no_answer() {
    let _alone = alone();
    let named = |name: &str, record: &[u8]| record[12..].starts_with(format!("{{\"name\":\"{name}\"").as_bytes());
    let damage = |record: &mut [u8]| {
        if named("Huge", record) {
            record[20] ^= 1;
        }
    };
    let output = with_records(damage, || gpumem(&["fit", "--quiet"]));
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{table}{errors}");
    assert!(table.contains("Wide") && !table.contains("Huge"), "{table}");
    assert!(
        errors.contains("a damaged record: ") && errors.contains("error: 1 record could not be read: "),
        "{errors}"
    );
    // Of another version are all of them.
    let message = with_records(|record| record[6] = b'2', || failure(&["fit", "--quiet"]));
    assert!(message.contains("a record of layout 2, written by an older gpumem"), "{message}");
    assert!(
        message.contains("error: no network could be read (15 records") && message.contains("--rev COMMIT"),
        "{message}"
    );
    // A magic with one bit flipped is counted: `Huge` does not vanish without a word.
    let flip = |record: &mut [u8]| {
        if named("Huge", record) {
            record[2] ^= 4;
        }
    };
    let message = with_records(flip, || failure(&["fit", "--quiet"]));
    assert!(
        message.contains("a damaged record: its first bytes, ") && message.contains("error: 1 record "),
        "{message}"
    );
    let shown = with_records(flip, || gpumem(&["show", "--quiet", "Wide"]));
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stderr).contains("warning: 1 record could not be read: "), "{}", text(&shown.stderr));
    let message = with_records(flip, || failure(&["show", "--quiet", "Huge"]));
    assert!(
        message.contains("no network is called `Huge`; there is ") && message.contains("(1 record could"),
        "{message}"
    );
    let message = with_records(flip, || failure(&["diff", "--quiet", "HEAD"]));
    assert!(message.contains("error: 1 record could not be read: "), "{message}");
    // A record with a right digest and without what this version reads.
    let lacking = |record: &mut [u8]| {
        if named("Huge", record) {
            let length = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
            let at = 12 + text(&record[12..12 + length]).find("\"headroom\"").unwrap();
            record[at + 1] = b'H';
            let digest = record::digest(&record[12..12 + length]);
            record[12 + length..20 + length].copy_from_slice(&digest.to_le_bytes());
        }
    };
    let message = with_records(lacking, || failure(&["fit", "--quiet"]));
    let expected = "the record of `Huge`: it has no `settings.train.headroom` that can be read; another version of gpumem wrote it";
    assert!(message.contains(expected) && message.contains("error: 1 record could not be read"), "{message}");
    let newer = |record: &mut [u8]| record[6] = b'1' + record::VERSION;
    let message = with_records(newer, || failure(&["diff", "--quiet", "HEAD"]));
    assert!(message.contains("error: 15 records could not be read: "), "{message}");
}
