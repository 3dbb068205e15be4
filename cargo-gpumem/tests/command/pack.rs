//! `pack`, on published instances and on a timeline.

use super::{failure, printed};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn published(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpumem-core/tests/data/planner");
    folder.join(format!("{name}.csv")).display().to_string()
}

/// Returns a file that does not exist, in a folder for this test.
fn fresh(name: &str) -> PathBuf {
    let folder = tempfile::Builder::new().prefix("pack").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap().keep();
    folder.join(name)
}

#[test]
fn buffers_are_packed_and_written_with_offsets() {
    let (file, placed) = (published("input.12"), fresh("placed.csv"));
    let path = placed.display().to_string();
    let (text, code) = printed(&["pack", &file, "--capacity", "12B", "-o", &path]);
    assert_eq!(code, 0);
    for line in [
        "buffers   5\n",
        "bound     12 B (12 bytes): the most that is alive at once\n",
        "compiler  12 B (12 bytes), the least possible\n",
        "packed    12 B (12 bytes), the least possible, in ",
        "capacity  12 B (12 bytes): fits, with 0 B left\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let placed = std::fs::read_to_string(placed).unwrap();
    let lines: Vec<&str> = placed.lines().collect();
    assert_eq!((lines[0], lines.len()), ("id,lower,upper,size,offset", 6));
    assert!(lines[1].starts_with("b1,0,3,4,"), "{placed}");
    assert!(failure(&["pack", &file, "-o", &path]).contains("exists; `--force` replaces it"));
    assert!(failure(&["pack", &file, "-o", &file, "--force"]).contains("is read by this command"));
}

#[test]
fn a_search_comes_below_the_packing_of_the_compiler() {
    let file = published("B.1048576");
    let packed = |more: &[&str]| -> (Value, i32) {
        let (text, code) = printed(&[&["pack", &file, "--format", "json"], more].concat());
        (serde_json::from_str(&text).unwrap(), code)
    };
    let (quick, code) = packed(&["--quick", "--capacity", "1048576B"]);
    assert_eq!((quick["size"] == quick["compiler"], &quick["fits"], code), (true, &Value::Bool(false), 1));
    let (found, code) = packed(&["--capacity", "1048576B"]);
    assert_eq!((&found["fits"], code), (&Value::Bool(true), 0));
    assert!(found["size"].as_u64().unwrap() < quick["size"].as_u64().unwrap());
    assert_eq!(found["offsets"].as_array().unwrap().len(), found["buffers"].as_u64().unwrap() as usize);
}

#[test]
fn what_cannot_fit_is_told() {
    let (text, code) = printed(&["pack", &published("input.12"), "--capacity", "11B"]);
    assert_eq!(code, 1);
    assert!(text.contains("capacity  11 B (11 bytes): no packing can fit; 1 B are missing\n"), "{text}");
    let file = published("B.1048576");
    let (text, code) = printed(&["pack", &file, "--quick", "--capacity", "1048576B"]);
    assert!(code == 1 && text.contains("no packing was found for it; "), "{text}");
}

#[test]
fn a_timeline_is_a_file_of_buffers() {
    let _alone = super::alone();
    let step = fresh("step.csv").display().to_string();
    printed(&["timeline", "Wide", "--quiet", "-o", &step]);
    let (text, _) = printed(&["pack", &step, "--alignment", "256", "--format", "json"]);
    let packed: Value = serde_json::from_str(&text).unwrap();
    let (text, _) = printed(&["timeline", "Wide", "--quiet", "-o", "-", "--format", "json"]);
    let plan: Value = serde_json::from_str(&text).unwrap();
    let arena = plan["lines"].as_array().unwrap().iter().position(|line| line == "arena").unwrap();
    assert_eq!(packed["size"], plan["budget"]["bytes"][arena], "{packed}");
}

#[test]
fn files_without_buffers_are_refused() {
    let path = fresh("wrong.csv");
    std::fs::write(&path, "a,b\n1,2\n").unwrap();
    let text = failure(&["pack", &path.display().to_string()]);
    assert!(text.contains("wrong.csv: its first line must name the columns `lower`, `upper` and `size`"), "{text}");
    assert!(failure(&["pack", "nothing.csv"]).contains("cannot read nothing.csv: "));
    let largest = u64::MAX;
    std::fs::write(&path, format!("lower,upper,size\n0,1,{largest}\n0,1,1\n")).unwrap();
    let text = failure(&["pack", &path.display().to_string()]);
    assert!(text.contains("the sizes of all buffers add up to 2^64 bytes or more"), "{text}");
}
