//! Budgets and records of small steps, against sums by hand.

mod chain;

use chain::TENSORS;
use gpumem_core::cards::{Card, H100_SXM, RTX_3060};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Budget, Line, Plan, PlanError, live_ranges, padded, plan};
use gpumem_core::memory::plan::{ALIGNMENT, verify};
use gpumem_core::memory::record::{MAGIC, RECORD_BYTES, read_records, record};
use gpumem_core::memory::tables::{Tables, Workspaces};
use gpumem_core::program::Part;
use gpumem_core::{Half, Precision, Role};

static TRANSIENTS: [[u64; 5]; TENSORS] = chain::transients(1000, 500);
static PARAMETERS: [[u64; 3]; 4] = chain::parameters(1000);

/// What a backend would be given, but for the program.
const fn compiled(budget: Budget) -> Compiled {
    Compiled { program: &[], tables: &STEP, offsets: &[], budget, batch: 7, precision: Precision::F32 }
}

static STEP: Tables = chain::step(&TRANSIENTS, &PARAMETERS);

#[test]
fn every_line_is_exact() {
    const PLAN: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);
    let budget = PLAN.budget(1 << 20);
    assert_eq!(PLAN.error, None);
    assert_eq!(budget[Line::Weights], 4 * 4000);
    assert_eq!((budget[Line::Master], budget[Line::Gradients]), (0, 0));
    assert_eq!(budget[Line::Optimizer], 2 * 4 * 4000);
    assert_eq!(budget[Line::Buffers], 8);
    assert_eq!(budget[Line::BatchIo], 2 * (7 * 3 * 64 * 64 * 4 + 7 * 4));
    // Backward of the last layer: four outputs, its gradient, the next gradient, its weight gradient.
    assert_eq!(budget[Line::Activations], 6 * padded(7 * 500 * 4) + padded(4000));
    assert_eq!(budget.peak, 4);
    assert_eq!((budget.largest, budget.largest_bytes), (0, 7 * 500 * 4));
    let padding = 4 * (padded(4000) - 4000) * 3 + (256 - 8) + 2 * (256 - 28);
    let lines: u64 = Line::parts().map(|part| budget[part]).sum();
    assert_eq!(budget[Line::Arena], lines + padding);
    assert_eq!(budget.lower_bound, budget[Line::Arena]);
    assert_eq!(budget[Line::Total], budget[Line::Arena] + (1 << 20));
}

#[test]
fn parts_follow_one_another() {
    let plan: Plan<TENSORS> = plan(&STEP, 7, Precision::Mixed(Half::F16));
    assert_eq!(plan.budget[Line::Weights], 4 * 2000);
    assert_eq!(plan.budget[Line::Master], 4 * 4000);
    assert_eq!(plan.start(Line::Master), 4 * padded(2000));
    assert_eq!(plan.start(Line::Gradients), plan.start(Line::Master) + 4 * padded(4000));
    assert_eq!(plan.start(Line::Optimizer), plan.start(Line::Gradients));
    assert_eq!(plan.start(Line::Buffers), plan.start(Line::Optimizer) + 8 * padded(4000));
    assert_eq!(plan.start(Line::BatchIo), plan.start(Line::Buffers) + 256);
    assert_eq!(plan.start(Line::Activations), plan.arena() - plan.packing.size);
    assert!(Line::parts().is_sorted_by_key(|part| plan.start(part)));
    assert!(Line::ALL.iter().enumerate().all(|(i, &line)| i == line as usize));
    let ranges = live_ranges(&STEP, 7, Precision::Mixed(Half::F16)).unwrap();
    assert!(verify(&ranges, &plan.packing, ALIGNMENT));
    assert_eq!(plan.offset(5), plan.start(Line::Activations) + plan.packing.offsets[5]);
}

#[test]
fn held_gradients_and_inference() {
    let held: Plan<TENSORS> = plan(&Tables { holds_gradients: true, moments: 0, ..STEP }, 7, Precision::F32);
    assert_eq!((held.budget[Line::Gradients], held.budget[Line::Optimizer]), (16_000, 0));
    let inference: Plan<TENSORS> = plan(&Tables { training: false, moments: 0, ..STEP }, 7, Precision::F32);
    assert_eq!(inference.budget[Line::BatchIo], 7 * 3 * 64 * 64 * 4 + 7 * 4);
}

#[test]
fn what_cannot_be_planned_says_why() {
    let error = |step: &Tables, batch| plan::<TENSORS>(step, batch, Precision::F32).error;
    assert_eq!(error(&STEP, 0), Some(PlanError::ZeroBatch));
    assert_eq!(error(&STEP, u64::MAX), Some(PlanError::Overflow));
    assert_eq!(error(&STEP, 1 << 49), Some(PlanError::Overflow));
    assert_eq!(error(&STEP, 1 << 40), None);
    assert_eq!(error(&Tables { operations: 0, ..STEP }, 1), Some(PlanError::EmptyNetwork));
    assert_eq!(error(&Tables { operations: 3, ..STEP }, 1), Some(PlanError::Malformed));
    assert_eq!(error(&Tables { parameters: &[[9, 1, 1]], ..STEP }, 1), Some(PlanError::Malformed));
    assert_eq!(error(&Tables { parameters: &[[1, u64::MAX, 1]], ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(error(&Tables { moments: u64::MAX, ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(plan::<3>(&STEP, 1, Precision::F32).error, Some(PlanError::Malformed));
}

#[test]
fn records_are_read_back() {
    const TRAIN: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);
    static RECORD: [u8; RECORD_BYTES] = record("Chain", Some(&compiled(TRAIN.budget(512))), None);
    let mut section = vec![0, 1, 2];
    section.extend(RECORD);
    section.extend(MAGIC);
    section.extend(u32::MAX.to_le_bytes());
    section.extend([0; 5]);
    section.extend(record("B", None, Some(&compiled(TRAIN.budget))));
    section.extend(&MAGIC[..6]);
    let texts: Vec<_> = read_records(&section).collect();
    let lower_bound = TRAIN.budget.lower_bound;
    let lines = format!(
        "\"batch\":7,\"workspace\":0,\"lower_bound\":{lower_bound},\"weights\":16000,\"master\":0,\"gradients\":0,\
         \"optimizer\":32000,\"buffers\":8,\"batch_io\":688184,\"activations\":"
    );
    assert_eq!(texts.len(), 2);
    assert!(texts[0].starts_with(&format!("{{\"name\":\"Chain\",\"train\":{{{lines}")), "{}", texts[0]);
    let end = format!("\"reserve\":512,\"total\":{}}},\"infer\":null}}", TRAIN.arena() + 512);
    assert!(texts[0].ends_with(&end), "{}", texts[0]);
    assert!(texts[1].starts_with("{\"name\":\"B\",\"train\":null,\"infer\":{\"batch\":7,"), "{}", texts[1]);
}

#[test]
fn the_longest_record_is_complete_and_its_name_is_safe() {
    let mut budget = plan::<TENSORS>(&STEP, 7, Precision::F32).budget;
    (budget.lines, budget.lower_bound, budget.workspace) = ([u64::MAX; Line::COUNT], u64::MAX, u64::MAX);
    let compiled = Compiled { batch: u64::MAX, ..compiled(budget) };
    let name = format!("a\"\\\n{}", "\u{e9}".repeat(200));
    let record = record(&name, Some(&compiled), Some(&compiled));
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
    let step = Tables {
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
        (planned.budget.workspace, planned.budget[Line::Activations])
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
