//! Budgets and records of small steps, against sums by hand.

mod chain;

use chain::TENSORS;
use gpumem_core::budget::{Plan, PlanError, Region, live_ranges, padded, plan};
use gpumem_core::cards::{Card, H100_SXM, RTX_3060};
use gpumem_core::plan::{ALIGNMENT, verify};
use gpumem_core::record::{MAGIC, RECORD_BYTES, read_records, record};
use gpumem_core::step::{Part, Step, Workspaces};
use gpumem_core::{Half, Precision, Role};

static TRANSIENTS: [[u64; 5]; TENSORS] = chain::transients(1000, 500);
static PARAMETERS: [[u64; 2]; 4] = chain::parameters(1000);
static STEP: Step = chain::step(&TRANSIENTS, &PARAMETERS);

#[test]
fn every_line_is_exact() {
    const PLAN: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);
    let budget = PLAN.budget(1 << 20);
    assert_eq!(PLAN.error, None);
    assert_eq!(budget.weights, 4 * 4000);
    assert_eq!((budget.master, budget.gradients), (0, 0));
    assert_eq!(budget.optimizer, 2 * 4 * 4000);
    assert_eq!(budget.buffers, 8);
    assert_eq!(budget.batch, 2 * (7 * 3 * 64 * 64 * 4 + 7 * 4));
    // Backward of the last layer: four outputs, its gradient, the next gradient, its weight gradient.
    assert_eq!(budget.activations, 6 * padded(7 * 500 * 4) + padded(4000));
    assert_eq!(budget.peak, 4);
    assert_eq!((budget.largest, budget.largest_bytes), (0, 7 * 500 * 4));
    let padding = 4 * (padded(4000) - 4000) * 3 + (256 - 8) + 2 * (256 - 28);
    let lines = budget.weights + budget.optimizer + budget.buffers + budget.batch + budget.activations;
    assert_eq!(budget.arena, lines + padding);
    assert_eq!(budget.lower_bound, budget.arena);
    assert_eq!(budget.total, budget.arena + (1 << 20));
    assert_eq!((budget.batch_size, budget.precision), (7, Precision::F32));
}

#[test]
fn regions_follow_one_another() {
    let plan: Plan<TENSORS> = plan(&STEP, 7, Precision::Mixed(Half::F16));
    assert_eq!(plan.budget.weights, 4 * 2000);
    assert_eq!(plan.budget.master, 4 * 4000);
    assert_eq!(plan.start(Region::Master), 4 * padded(2000));
    assert_eq!(plan.start(Region::Gradients), plan.start(Region::Master) + 4 * padded(4000));
    assert_eq!(plan.start(Region::Optimizer), plan.start(Region::Gradients));
    assert_eq!(plan.start(Region::Buffers), plan.start(Region::Optimizer) + 8 * padded(4000));
    assert_eq!(plan.start(Region::Batch), plan.start(Region::Buffers) + 256);
    assert_eq!(plan.start(Region::Activations), plan.arena() - plan.packing.size);
    assert!(Region::ALL.is_sorted_by_key(|&region| plan.start(region)));
    assert!(Region::ALL.iter().enumerate().all(|(i, &region)| i == region as usize));
    let ranges = live_ranges(&STEP, 7, Precision::Mixed(Half::F16)).unwrap();
    assert!(verify(&ranges, &plan.packing, ALIGNMENT));
    assert_eq!(plan.offset(5), plan.start(Region::Activations) + plan.packing.offsets[5]);
}

#[test]
fn held_gradients_and_inference() {
    let held: Plan<TENSORS> = plan(&Step { holds_gradients: true, moments: 0, ..STEP }, 7, Precision::F32);
    assert_eq!((held.budget.gradients, held.budget.optimizer), (16_000, 0));
    let inference: Plan<TENSORS> = plan(&Step { training: false, moments: 0, ..STEP }, 7, Precision::F32);
    assert_eq!(inference.budget.batch, 7 * 3 * 64 * 64 * 4 + 7 * 4);
}

#[test]
fn what_cannot_be_planned_says_why() {
    let error = |step: &Step, batch| plan::<TENSORS>(step, batch, Precision::F32).error;
    assert_eq!(error(&STEP, 0), Some(PlanError::ZeroBatch));
    assert_eq!(error(&STEP, u64::MAX), Some(PlanError::Overflow));
    assert_eq!(error(&STEP, 1 << 49), Some(PlanError::Overflow));
    assert_eq!(error(&STEP, 1 << 40), None);
    assert_eq!(error(&Step { operations: 0, ..STEP }, 1), Some(PlanError::EmptyNetwork));
    assert_eq!(error(&Step { operations: 3, ..STEP }, 1), Some(PlanError::Malformed));
    assert_eq!(error(&Step { parameters: &[[9, 1]], ..STEP }, 1), Some(PlanError::Malformed));
    assert_eq!(error(&Step { parameters: &[[1, u64::MAX]], ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(error(&Step { moments: u64::MAX, ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(plan::<3>(&STEP, 1, Precision::F32).error, Some(PlanError::Malformed));
}

#[test]
fn records_are_read_back() {
    const TRAIN: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);
    static RECORD: [u8; RECORD_BYTES] = record("Chain", Some(&TRAIN.budget(512)), None);
    let mut section = vec![0, 1, 2];
    section.extend(RECORD);
    section.extend(MAGIC);
    section.extend(u32::MAX.to_le_bytes());
    section.extend([0; 5]);
    section.extend(record("B", None, Some(&TRAIN.budget)));
    section.extend(&MAGIC[..6]);
    let texts: Vec<_> = read_records(&section).collect();
    let lines = "\"batch\":7,\"weights\":16000,\"master\":0,\"gradients\":0,\"optimizer\":32000,\"buffers\":8,\"batch_io\":688184,";
    assert_eq!(texts.len(), 2);
    assert!(texts[0].starts_with(&format!("{{\"name\":\"Chain\",\"train\":{{{lines}\"activations\":")), "{}", texts[0]);
    let end = format!("\"reserve\":512,\"total\":{}}},\"infer\":null}}", TRAIN.arena() + 512);
    assert!(texts[0].ends_with(&end), "{}", texts[0]);
    assert!(texts[1].starts_with("{\"name\":\"B\",\"train\":null,\"infer\":{\"batch\":7,"), "{}", texts[1]);
}

#[test]
fn the_longest_record_is_complete_and_its_name_is_safe() {
    let mut budget = plan::<TENSORS>(&STEP, 7, Precision::F32).budget;
    for number in [
        &mut budget.weights,
        &mut budget.master,
        &mut budget.gradients,
        &mut budget.optimizer,
        &mut budget.buffers,
        &mut budget.batch,
        &mut budget.activations,
        &mut budget.arena,
        &mut budget.reserve,
        &mut budget.total,
        &mut budget.lower_bound,
        &mut budget.batch_size,
    ] {
        *number = u64::MAX;
    }
    let name = format!("a\"\\\n{}", "\u{e9}".repeat(200));
    let record = record(&name, Some(&budget), Some(&budget));
    let text = read_records(&record).next().unwrap();
    assert!(text.ends_with(&format!("\"total\":{}}}}}", u64::MAX)), "{text}");
    assert!(text.starts_with(&format!("{{\"name\":\"a___{}\",", "\u{e9}".repeat(62))), "{text}");
}

/// Transient tensors with a workspace of each kind.
const SCRATCH: [[u64; 5]; 3] = [
    [Role::Activation as u64, 0, 1000, 0, 1],
    [Role::ProductWorkspace as u64, 0, 3000, 0, 0],
    [Role::ConvolutionWorkspace as u64, 5000, 0, 1, 1],
];

#[test]
fn workspaces_are_capped() {
    let step = Step {
        operations: 2,
        transients: &SCRATCH,
        transient_tags: &[0, 0, 0, 0, Part::Workspace as u8, 0, 0, 0, Part::Workspace as u8, 0, 0, 0],
        parameters: &[],
        ..STEP
    };
    let workspaces = |product, convolution| {
        let step = step.with_workspaces(Workspaces { product, convolution });
        let planned = plan::<3>(&step, 2, Precision::F32);
        assert_eq!(planned.error, None);
        (planned.budget.workspace, planned.budget.activations)
    };
    // At batch 2: 8,000 bytes, 24,000 bytes beside it, then 20,000 bytes beside it; each is padded to 256.
    assert_eq!(workspaces(u64::MAX, u64::MAX), (24_000, 8192 + 24_064));
    assert_eq!(workspaces(10_000, u64::MAX), (20_000, 8192 + 20_224));
    assert_eq!(workspaces(10_000, 1 << 10), (10_000, 8192 + 10_240));
    assert_eq!(workspaces(0, 0), (0, 8192));
}

#[test]
fn the_newest_card_decides_about_the_workspace_of_products() {
    let product = |cards: [&[Card]; 2]| Workspaces::aimed(cards, 7).product >> 20;
    assert_eq!(product([&[], &[]]), 32);
    assert_eq!(product([&[RTX_3060], &[]]), 4);
    assert_eq!(product([&[RTX_3060], &[H100_SXM]]), 32);
    assert_eq!(product([&[], &[RTX_3060]]), 4);
    assert_eq!(Workspaces::aimed([&[], &[]], 7).convolution, 7);
}
