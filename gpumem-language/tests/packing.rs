//! Packings of training steps that are harder than the plain ones of the zoo.

use gpumem_core::cards::RTX_3090;
use gpumem_core::memory::budget::Line;
use gpumem_language::source::{Overrides, Text};
use std::path::Path;

/// Fields of a step, the most networks that may miss the bound with them, and the most hundredths of a percent.
type Setting = (&'static [(&'static str, &'static str)], usize, u64);

const SETTINGS: [Setting; 8] = [
    (&[("ranks", "2")], 0, 0),
    (&[("ranks", "8")], 0, 0),
    (&[("ranks", "8"), ("shard", "Optimizer")], 0, 0),
    (&[("ranks", "8"), ("shard", "Gradients")], 4, 33),
    (&[("ranks", "8"), ("shard", "Parameters")], 6, 35),
    (&[("micro_batches", "4")], 0, 0),
    (&[("checkpoint", "Cheap")], 0, 0),
    (&[("offload", "Activations")], 0, 0),
];

/// Prints the table of `docs/design/liveness-and-packing.md`.
#[test]
#[ignore = "a sweep: run by .ci/run"]
fn hard_steps_of_the_zoo() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpumem-zoo/src");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| Text::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let texts: Vec<Text> = files.iter().map(read).collect();
    for (settings, most, worst) in SETTINGS {
        let mut overrides = Overrides::default();
        overrides.set("batch", "32").unwrap();
        settings.iter().for_each(|(field, value)| overrides.set(field, value).unwrap());
        let (mut steps, mut misses) = (0, Vec::new());
        for (path, own) in files.iter().zip(&texts) {
            let mut text = read(path);
            texts.iter().for_each(|other| text.add_blocks(other));
            for name in own.names() {
                // Some networks are not trained, and some have a field that excludes the setting.
                let Ok(declared) = text.declared(Some(&name), &overrides) else { continue };
                let Ok(plan) = declared.plan() else { continue };
                let budget = plan.budget(&[&RTX_3090]).unwrap();
                let (arena, bound) = (budget[Line::Arena], budget.lower_bound);
                steps += 1;
                misses.extend((arena > bound).then(|| (10_000 * (arena - bound)).div_ceil(bound)));
            }
        }
        let largest = misses.iter().copied().max().unwrap_or(0);
        let settings: Vec<String> = settings.iter().map(|(field, value)| format!("{field}: {value}")).collect();
        let settings = settings.join(", ");
        println!("| `{settings}` | {steps} | {} | {:.2} % |", misses.len(), largest as f64 / 100.0);
        assert!(steps > 50 && misses.len() <= most && largest <= worst, "{settings}: {misses:?}");
    }
}
