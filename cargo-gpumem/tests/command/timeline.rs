//! Timelines of networks that were built.

use super::{alone, failure, printed};
use serde_json::Value;

fn timeline(arguments: &[&str]) -> Value {
    let (text, _) = printed(&[&["timeline", "--quiet", "-o", "-", "--format", "json"], arguments].concat());
    serde_json::from_str(&text).unwrap()
}

/// The record of a network has the lines of its layers, as the compiler knows them.
#[test]
fn layers_of_a_build_have_their_source_lines() {
    let _alone = alone();
    let plan = timeline(&["Wide"]);
    let source = include_str!("../fixture/src/lib.rs");
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1;
    let files: Vec<&str> =
        plan["sources"]["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(matches!(files[..], [file] if file.ends_with("src/lib.rs")), "{files:?}");
    let line = |row: usize| {
        plan["sources"]["lines"][plan["layers"]["source"][row].as_u64().unwrap() as usize][1].as_u64().unwrap()
    };
    let paths = plan["layers"]["path"].as_array().unwrap();
    assert_eq!(
        (paths[0].as_str(), line(0)),
        (Some("conv2d[0]"), line_of("Conv2d(64, 3, padding = 1), BatchNorm2d, Relu, MaxPool2d(2)"))
    );
    assert_eq!(
        line(paths.len() - 1),
        line_of("Conv2d(256, 3, padding = 1), Dropout(0.1), Relu, GlobalAvgPool, Linear(10)")
    );
    // The batch and the card are those of the source.
    assert_eq!((plan["batch"].as_u64(), plan["card"]["slug"].as_str()), (Some(8), Some("rtx3090")));
}

#[test]
fn a_network_is_chosen_by_its_name() {
    let _alone = alone();
    assert_eq!(timeline(&["Generic<64>"])["batch"], 64);
    assert_eq!(timeline(&["Both", "--inference"])["program"], "infer");
    let message = failure(&["timeline", "--quiet", "wide", "-o", "-", "--format", "csv"]);
    assert!(message.contains("no network is called `wide`; did you mean `Wide`?"), "{message}");
    let message = failure(&["timeline", "--quiet", "-o", "-", "--format", "csv"]);
    assert!(message.contains("name the network to show: there is "), "{message}");
}
