//! Predicts what PyTorch needs for a training step of 44 networks, and compares it with what PyTorch was measured to need.

use gpumem_import::Pt2;
use gpumem_import::model::Model;
use gpumem_import::torch::{
    Algorithm, Autocast, Optimizer, Phase, Purpose, Refusal, Report, Request, Rules, Update, differences,
    largest_batch, predict, smallest_capacity,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models")
}

fn index() -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(models().join("index.json")).unwrap()).unwrap()
}

fn read(name: &str) -> Model {
    Pt2::open(&models().join(format!("{name}.pt2"))).unwrap().model(None, &[]).unwrap()
}

/// The request with which the networks were measured.
fn request(optimizer: &str) -> Request {
    let algorithm = match optimizer {
        "adamw" => Algorithm::AdamW { amsgrad: false },
        _ => Algorithm::Sgd { momentum: true, nesterov: false },
    };
    let optimizer = Optimizer { algorithm, update: Update::ForLoop, weight_decay: false };
    Request { batch: Some(32), rules: Rules::tracker(), optimizer, ..Request::default() }
}

fn phase(report: &Report, phase: Phase) -> u64 {
    report.phases.iter().find(|(other, _)| *other == phase).map_or(0, |(_, bytes)| *bytes)
}

/// The networks whose peak is not that of PyTorch to the byte: the largest share by which it differs, and the reason.
const DIFFERENT: [(&str, f64, &str); 1] =
    [("timm_coat_lite_tiny", 0.014, "Python holds values in locals that the graph does not show")];

/// The networks in whose forward pass Python holds values in locals that the graph does not show. No peak of theirs is there.
const HELD_BY_PYTHON: [&str; 11] = [
    "albert_base",
    "bert_base",
    "csp_pan_detector",
    "gru_lm",
    "lstm_lm",
    "roberta_base",
    "timm_deit_tiny_distilled_patch16_224",
    "timm_efficientformer_l1",
    "timm_eva02_tiny_patch14_224",
    "timm_mixer_s16_224",
    "timm_resmlp_12_224",
];

/// The peak of the step, and those of its phases, are PyTorch's to the byte.
#[test]
fn peaks_are_those_of_pytorch() {
    let (mut close, mut wrong) = (0, Vec::new());
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let model = read(name);
        let step = &facts["training_step_batch32"];
        for optimizer in ["sgd_momentum", "adamw"] {
            let report = predict(&model, &request(optimizer)).unwrap_or_else(|error| panic!("{name}: {error}"));
            let truth = &step["optimizers"][optimizer];
            let peak = truth["peak_bytes"].as_u64().unwrap();
            let share = report.allocated as f64 / peak as f64 - 1.0;
            close += usize::from(share.abs() < 0.01);
            if let Some((_, bound, _)) = DIFFERENT.iter().find(|(other, ..)| *other == name) {
                assert!(share.abs() < *bound, "{name} {optimizer}: {} for {peak}", report.allocated);
                continue;
            }
            let phases = &step["phase_peaks_without_optimizer_state"];
            let state = truth["state_bytes"].as_u64().unwrap();
            let with_state = |phase: &str| phases[phase].as_u64().unwrap() + state;
            let mut all = vec![
                (Phase::Loss, with_state("loss")),
                (Phase::Backward, with_state("backward")),
                (Phase::Update, truth["optimizer_phase_bytes"].as_u64().unwrap()),
            ];
            if !HELD_BY_PYTHON.contains(&name) {
                all.push((Phase::Forward, with_state("forward")));
            }
            for (phase, truth) in all {
                let ours = self::phase(&report, phase);
                if ours != truth {
                    wrong.push(format!("{name} {optimizer}, {}: {ours} for {truth}", phase.name()));
                }
            }
            if report.allocated != peak {
                wrong.push(format!("{name} {optimizer}: {} for {peak}", report.allocated));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(close >= 86, "{close} of 88 peaks are within 1 %");
}

/// Every operation returns tensors of the shapes, types and strides that PyTorch recorded.
#[test]
fn tensors_are_those_of_the_file() {
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let found = differences(&read(name), &request("adamw")).unwrap();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

const MIB: f64 = (1 << 20) as f64;

/// Figures for a card in MiB, of AdamW at batch 32: those of PyTorch's trackers on fake tensors, rounded to a tenth.
///
/// In f32, and with autocast to bf16.
const CARDS: [(&str, f64, f64); 2] = [("vit_b_16", 4886.2, 3252.8), ("gpt2", 8723.3, 7147.6)];

fn on_a_card(rules: Rules) -> Request {
    let optimizer = Optimizer { weight_decay: false, ..Optimizer::default() };
    Request { batch: Some(32), rules, optimizer, ..Request::default() }
}

#[test]
fn cards_need_what_trackers_see() {
    for (name, single, lower) in CARDS {
        let model = read(name);
        for (autocast, truth) in [(None, single), (Some(Autocast::Bf16), lower)] {
            let request = on_a_card(Rules { tracker: true, autocast, ..Rules::cuda() });
            let ours = predict(&model, &request).unwrap().allocated as f64 / MIB;
            assert!((ours - truth).abs() < 0.06, "{name}, {autocast:?}: {ours} for {truth}");
        }
    }
}

/// The allocator's figures were made by another implementation of the same constants.
#[test]
fn the_allocator_holds_more_than_tensors() {
    let report = predict(&read("vit_b_16"), &on_a_card(Rules::cuda())).unwrap();
    let held = report.reserved(false, None);
    let expandable = report.reserved(true, None);
    assert_eq!([held.reserved as f64 / MIB, expandable.reserved as f64 / MIB], [5118.0, 4930.0]);
    assert!(held.allocated >= report.allocated);
    // With as much memory nothing goes back, and with the smallest capacity it still runs.
    let again = report.reserved(false, Some(held.reserved));
    assert_eq!((again.flushes, again.out_of_memory), (0, None));
    let least = smallest_capacity(&report.trace, false);
    assert!(least <= held.reserved && report.fits(false, least) && !report.fits(false, least - (2 << 20)));
}

/// Everything that is taken is given back, but for parameters, gradients, optimizer state, buffers, inputs and targets.
#[test]
fn traces_balance() {
    for facts in index() {
        let name = facts["name"].as_str().unwrap();
        let report = predict(&read(name), &Request { batch: None, ..request("adamw") }).unwrap();
        let alive = report.trace.alive(report.trace.events.len());
        let left: Vec<_> =
            alive.iter().filter(|(_, purpose)| matches!(purpose, Purpose::Saved | Purpose::Temporary)).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        let sum = |all: &[(Purpose, u64)]| all.iter().map(|(_, bytes)| bytes).sum::<u64>();
        assert_eq!(sum(&report.by_purpose), report.allocated, "{name}");
        assert_eq!(report.by_module.iter().map(|(_, bytes)| bytes).sum::<u64>(), report.allocated, "{name}");
    }
}

#[test]
fn the_largest_batch_is_the_last_that_fits() {
    let model = read("mobilenet_v3_small");
    let at = |batch| predict(&model, &Request { batch: Some(batch), ..on_a_card(Rules::cuda()) });
    let mut before = 0;
    for batch in [1, 2, 3, 8, 64] {
        let peak = at(batch).unwrap().allocated;
        assert!(peak > before, "{batch}");
        before = peak;
    }
    let capacity = 4 << 30;
    let largest = largest_batch(capacity, false, at).unwrap().unwrap();
    assert!(at(largest).unwrap().fits(false, capacity) && !at(largest + 1).unwrap().fits(false, capacity), "{largest}");
    assert_eq!(largest_batch(1 << 20, false, at).unwrap(), None);
}

/// An operation of which nothing is known is named, and bounded if a part is asked for.
#[test]
fn unknown_operations_are_named() {
    let mut model = read("alexnet");
    for node in &mut model.nodes {
        if node.op == "adaptive_avg_pool2d" {
            node.op = String::from("folded_pool");
        }
    }
    let request = request("adamw");
    match predict(&model, &request) {
        Err(Refusal::Unknown(all)) => {
            assert_eq!(all.len(), 1);
            assert_eq!(
                (&all[0].operation[..], all[0].count, &all[0].first[..]),
                ("folded_pool", 1, "adaptive_avg_pool2d")
            );
        }
        other => panic!("{other:?}"),
    }
    let report = predict(&model, &Request { partial: true, ..request }).unwrap();
    assert_eq!(report.unknown.len(), 1);
    assert!(report.at_least <= report.allocated);
    let truth = predict(&read("alexnet"), &request).unwrap().allocated;
    assert!(report.at_least <= truth && truth <= report.allocated, "{} {truth} {}", report.at_least, report.allocated);
}

#[test]
fn batches_that_cannot_be_changed_are_refused() {
    let mut model = read("alexnet");
    model.batch = Some(1);
    assert!(matches!(predict(&model, &request("adamw")), Err(Refusal::Batch(_))));
    let zero = Request { batch: Some(0), ..request("adamw") };
    assert!(matches!(predict(&read("alexnet"), &zero), Err(Refusal::Batch(_))));
    let huge = Request { batch: Some(1 << 60), ..request("adamw") };
    assert!(matches!(predict(&read("alexnet"), &huge), Err(Refusal::Batch(_))));
}
