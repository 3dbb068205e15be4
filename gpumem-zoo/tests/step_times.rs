//! The bytes in the table of measured step times in `docs/guide/making-it-fit.md`, which the example `step_times` prints.
#![allow(missing_docs)]

#[path = "../examples/step_times/networks.rs"]
#[allow(dead_code, reason = "the example also runs what it plans")]
mod networks;
#[path = "../examples/step_times/ways.rs"]
#[allow(dead_code, reason = "the example also runs what it plans")]
mod ways;

use networks::CASES;
use ways::WAYS;

type Failure = Box<dyn std::error::Error>;

#[test]
fn bytes_are_those_of_the_plans() {
    let path = format!("{}/../docs/guide/making-it-fit.md", env!("CARGO_MANIFEST_DIR"));
    let doc = std::fs::read_to_string(path).unwrap();
    let (_, table) = doc.split_once("<!-- step times -->\n").unwrap();
    let (table, _) = table.split_once("<!-- end of step times -->").unwrap();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(lines.len(), 2 + WAYS.len());
    for (number, case) in CASES.iter().enumerate() {
        let column = 1 + 2 * number;
        assert_eq!(lines[0][column], format!("{}, {}: MiB", case.name, case.size));
        for (way, line) in WAYS.iter().zip(&lines[2..]) {
            let planned = ways::step(case, way).unwrap().map_or(String::new(), |step| step.mib().to_string());
            assert_eq!(
                (line[0], line[column]),
                (way.name, planned.as_str()),
                "{}: run the example `step_times`",
                case.name
            );
        }
    }
}
