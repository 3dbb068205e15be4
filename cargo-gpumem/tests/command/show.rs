//! `show`, in a pipe and as a terminal sees it.

use super::{FIXTURE, alone, clean, failure, printed, text, write};
use serde_json::Value;
use std::process::Command;

const NET: &str = "use gpumem::prelude::*;\n\nnetwork! {\n    pub struct Deep;\n\n    const TRAIN: Train = Train { batch: 64, \
                   optimizer: Adam { lr: 1e-3 }, loss: CrossEntropy, cards: [RTX_3060, T4] };\n\n    fn forward(image: \
                   Image<3, 64, 64>) -> Logits<10> {\n        [Conv2d(64, 3, padding = 1), BatchNorm2d, Relu, Conv2d(64, 3, \
                   padding = 1), BatchNorm2d, Relu, GlobalAvgPool, Linear(10)]\n    }\n}\n\nnetwork! {\n    pub struct \
                   Small;\n\n    const INFER: Infer = Infer { batch: 1 };\n\n    fn forward(x: Features<64>) -> Logits<10> \
                   {\n        [Linear(10)]\n    }\n}\n";

/// Returns the text that `show` prints with these variables.
fn shown(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    write(&FIXTURE.join("deep.rs"), NET);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpumem"));
    let command = clean(&mut command).args(["gpumem", "show"]).args(arguments);
    for name in ["NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM"] {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A text without its colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn a_pipe_gets_plain_text_and_a_terminal_a_picture() {
    let _alone = alone();
    let piped = shown(&["deep.rs::Deep"], &[]);
    assert!(piped.is_ascii() && piped.contains("\nactivations ") && piped.contains("  held by\n"), "{piped}");
    assert_eq!(shown(&["deep.rs::Deep"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), piped);
    assert_eq!(shown(&["deep.rs::Deep"], &[("CLICOLOR_FORCE", "0")]), piped);
    for columns in [80, 120, 37] {
        let columns_text = columns.to_string();
        let picture = shown(&["deep.rs::Deep"], &[("CLICOLOR_FORCE", "1"), ("COLUMNS", &columns_text)]);
        assert!(picture.contains("\x1b[32m\u{2588}"), "{picture}");
        let picture = plain(&picture);
        let drawn = picture.split("\nweights ").nth(1).unwrap();
        let widest = drawn.lines().map(|line| line.chars().count()).max().unwrap();
        // The curve and the longest bar fill the line, and nothing is longer.
        assert!(widest <= columns.max(80) && widest + 2 >= columns.max(80), "{widest} of {columns}: {picture}");
        for part in [
            "RTX 3060 ",
            "fits, ",
            "live bytes over ",
            "\u{25bc}",
            "|forward",
            "|backward",
            "held by",
            "packed 100.0 %",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
    }
}

/// The curve is that of the budget: its highest value is the peak, at the operation that is named.
#[test]
fn the_live_bytes_are_those_of_the_budget() {
    let _alone = alone();
    let shown: Value = serde_json::from_str(&shown(&["deep.rs::Deep", "--format", "json"], &[])).unwrap();
    let live: Vec<u64> = shown["live"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
    let peak = shown["peak"]["operation"].as_u64().unwrap() as usize;
    assert_eq!(live.iter().max(), Some(&live[peak]));
    let outside: u64 = shown["budget"]
        .as_object()
        .unwrap()
        .iter()
        .filter_map(|(name, bytes)| {
            let is_part = !["activations", "arena", "reserve", "communication", "total"].contains(&name.as_str());
            is_part.then(|| bytes.as_u64().unwrap())
        })
        .sum();
    let bound = shown["lower_bound"].as_u64().unwrap();
    assert!((bound - live[peak]).abs_diff(outside) < 64 * 256, "{bound} less {} is {outside}", live[peak]);
    for alive in shown["alive_at_peak"].as_array().unwrap() {
        let last = alive["last"].as_u64().unwrap();
        assert!(last >= peak as u64 && (last as usize) < live.len(), "{alive}");
        assert!(alive["held_by"].as_str().unwrap().starts_with(&format!("{last} ")), "{alive}");
    }
}

#[test]
fn a_network_of_a_file_is_named_or_the_only_one() {
    let _alone = alone();
    assert!(shown(&["deep.rs::Small"], &[]).starts_with("Small: inference, batch 1, F32\n"));
    let message = failure(&["show", "deep.rs"]);
    assert!(message.contains("deep.rs has several networks: Deep, Small; name one, as `deep.rs::Deep`"), "{message}");
    assert!(failure(&["show", "deep.rs::Smal"]).contains("no network is called `Smal`; did you mean `Small`?"));
    assert!(failure(&["show", "none.rs"]).contains("cannot read none.rs: "));
    assert!(printed(&["show", "deep.rs::Small", "--top", "1"]).0.contains("alive at the peak"));
}
