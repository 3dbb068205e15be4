//! The workflow that other repositories call, run as a plain shell would run it.

use super::{FIXTURE, alone, clean, text};
use std::path::Path;
use std::process::{Command, Output};

/// Returns the lines of the workflow between `# fit:` and `# end of fit`, without their indentation.
fn script() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows/fit.yml");
    let workflow = std::fs::read_to_string(path).unwrap();
    let lines =
        workflow.lines().skip_while(|line| line.trim() != "# fit:").take_while(|line| line.trim() != "# end of fit");
    let script: Vec<&str> = lines.map(|line| line.strip_prefix("          ").unwrap_or(line)).collect();
    assert!(script.len() > 5, "{script:?}");
    script.join("\n")
}

/// Runs the script on the fixture. `summary` is the file that GitHub shows as the summary of a job.
fn run(arguments: &str, cards: &str, summary: Option<&Path>) -> Output {
    let folder = Path::new(env!("CARGO_BIN_EXE_cargo-gpumem")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // As GitHub runs a step.
    let mut command = Command::new("bash");
    clean(&mut command).args(["-e", "-c", &script()]).env("PATH", path);
    command.env("ARGUMENTS", arguments).env("CARDS", cards).env_remove("COMPARE").env_remove("GITHUB_ACTIONS");
    match summary {
        Some(summary) => command.env("GITHUB_STEP_SUMMARY", summary).env("GITHUB_ACTIONS", "true"),
        None => command.env_remove("GITHUB_STEP_SUMMARY"),
    };
    command.output().unwrap()
}

/// Four cards have room for the network, and one has not.
#[test]
fn the_summary_has_the_matrix_and_the_line_an_annotation() {
    let _alone = alone();
    let summary = FIXTURE.join("summary.md");
    let _ = std::fs::remove_file(&summary);
    let cards = "rtx3060,t4,l4,h100-sxm,64MiB";
    let output = run("Wide", cards, Some(&summary));
    assert_eq!(output.status.code(), Some(1), "one card refuses: {}", text(&output.stderr));
    let (written, printed) = (std::fs::read_to_string(&summary).unwrap(), text(&output.stdout));
    let heading = "| network | batch | precision | `RTX 3060` | `T4` | `L4` | `H100-SXM` |";
    assert!(written.starts_with("## Memory of networks\n") && written.contains(heading), "{written}");
    let row = written.lines().find(|line| line.starts_with("| `Wide` |")).unwrap();
    assert_eq!((row.matches("fits, ").count(), row.matches("**over by ").count()), (4, 1), "{row}");
    assert_eq!(printed.matches("::notice file=src/lib.rs,line=").count(), 4, "{printed}");
    assert_eq!(printed.matches("::error file=src/lib.rs,line=").count(), 1, "{printed}");
}

#[test]
fn a_plain_shell_prints_the_matrix() {
    let _alone = alone();
    let output = run("Wide", "t4,l4", None);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("| `Wide` |") && !printed.contains("::notice"), "{printed}");
    // Networks that have no answer are listed, with the reason.
    let output = run("", "", None);
    let printed = text(&output.stdout);
    assert!(printed.contains("\nWithout an answer:\n\n* `") && printed.contains("names no card"), "{printed}");
}

#[test]
fn a_failed_build_fails_the_job() {
    let _alone = alone();
    let output = run("Wide --features nothing_has_this_name", "t4", None);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}
