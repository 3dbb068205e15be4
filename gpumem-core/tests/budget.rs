//! Budgets and records of small steps, against sums by hand.

mod chain;

use chain::{Chain, TENSORS};
use gpumem_core::cards::{Card, H100_SXM, RTX_3060};
use gpumem_core::memory::Compiled;
use gpumem_core::memory::budget::{Budget, Line, Plan, PlanError, live_ranges, padded, plan};
use gpumem_core::memory::levels::Level;
use gpumem_core::memory::live_ranges::OwnedTransients;
use gpumem_core::memory::plan::{ALIGNMENT, AddressOrders, LiveRange, OwnedOrder, order, verify};
use gpumem_core::memory::record::{
    Declared, Fits, Text, Unreadable, bytes, digest, read_records, record, records, text,
};
use gpumem_core::memory::tables::{Order, Tables, Transient, Transients, Workspaces};
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::{Half, Infer, Precision, Role, Train};

static CHAIN: Chain = Chain::new(1000, 500);
static PARAMETERS: [[u64; 4]; 1] = chain::parameters(1000);

/// What a backend would be given, but for the program.
const fn compiled(budget: Budget) -> Compiled<'static> {
    Compiled {
        program: &[],
        tables: &STEP,
        offsets: &[],
        budget,
        batch: 7,
        precision: Precision::F32,
        level: Level::ONLY,
    }
}

static STEP: Tables = chain::step(&CHAIN, &PARAMETERS);

/// A step of two operations with these tensors and nothing else.
fn with_transients(transients: Transients<'_>) -> Tables<'_> {
    Tables { operations: 2, transients, parameters: &[], ..STEP }
}

/// A step of these tensors, for which these packings are carried.
fn with_orders<'a>(transients: &'a OwnedTransients, orders: &'a [Order<'a>]) -> Tables<'a> {
    with_transients(Transients { orders, ..transients.as_transients() })
}

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
    assert_eq!(plan.start(Line::Optimizer), plan.start(Line::Master) + 4 * padded(4000));
    assert_eq!(plan.start(Line::Buffers), plan.start(Line::Optimizer) + 8 * padded(4000));
    assert_eq!(plan.start(Line::Gradients), plan.start(Line::Buffers) + 256);
    assert_eq!(plan.start(Line::BatchIo), plan.start(Line::Gradients));
    assert_eq!(plan.start(Line::Activations), plan.arena() - plan.packing.size);
    assert!(Line::parts().is_sorted_by_key(|part| plan.start(part)));
    assert!(Line::ALL.iter().enumerate().all(|(i, &line)| i == line as usize));
    let ranges = live_ranges(&STEP, 7, Precision::Mixed(Half::F16)).unwrap();
    assert!(verify(&ranges, &plan.packing, ALIGNMENT));
    assert_eq!(plan.offset(5), plan.start(Line::Activations) + plan.packing.offsets[5]);
}

/// What is in memory at once of a batch that is split is one of its parts.
#[test]
fn a_batch_in_parts() {
    let split = STEP.with_micro_batches(4);
    let part: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);
    for batch in 25..=28 {
        let found: Plan<TENSORS> = plan(&split, batch, Precision::F32);
        assert_eq!((found.budget, found.batch), (part.budget, batch));
        assert_eq!(found.packing.offsets, part.packing.offsets);
    }
    assert!(plan::<TENSORS>(&split, 29, Precision::F32).arena() > part.arena());
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
    assert_eq!(error(&Tables { parameters: &[[99, 1, 1, 1]], ..STEP }, 1), Some(PlanError::Malformed));
    assert_eq!(error(&Tables { parameters: &[[1, u64::MAX, 1, 1]], ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(error(&Tables { moments: u64::MAX, ..STEP }, 1), Some(PlanError::Overflow));
    assert_eq!(plan::<3>(&STEP, 1, Precision::F32).error, Some(PlanError::Malformed));
}

const TRAIN: Plan<TENSORS> = plan(&STEP, 7, Precision::F32);

const fn declared(name: &'static str, training: &'static Compiled<'static>) -> Declared<'static> {
    const SETTINGS: Train = Train { headroom: 5, cards: &[RTX_3060, H100_SXM], ..Train::DEFAULT };
    Declared {
        name,
        place: ("src/net.rs", 12),
        is_generic: false,
        of: None,
        fits: None,
        selected: &[],
        train: Some(&SETTINGS),
        infer: None,
        training: Some(training),
        inference: None,
    }
}

static COMPILED: Compiled = compiled(TRAIN.budget(512));
static TEXT: Text = text(&declared("Chain", &COMPILED));
const BLUEPRINT: &[u8] = b"anything";
static RECORD: [u8; bytes(&TEXT, BLUEPRINT)] = record(&TEXT, BLUEPRINT, digest(BLUEPRINT));

#[test]
fn records_are_read_back() {
    let second = text(&Declared {
        train: None,
        infer: Some(&Infer::DEFAULT),
        of: Some(("a\"b.rs", 7)),
        fits: Some(Fits { place: [40, 7], index: 0, count: 2, cards: &[gpumem_core::cards::T4] }),
        ..declared("B", &COMPILED)
    });
    let mut section = vec![0; 3];
    section.extend(RECORD);
    section.extend([0; 3]);
    section.extend(record::<1024>(&second, &[], digest(&[])));
    let found: Vec<_> = records(&section).map(Result::unwrap).collect();
    let lower_bound = TRAIN.budget.lower_bound;
    let expected = format!(
        "{{\"name\":\"Chain\",\"file\":\"src/net.rs\",\"line\":12,\"generic\":false,\"selected\":[],\"settings\":{{\"train\":{{\"precision\":\"F32\",\
         \"headroom\":5,\"conv_workspace\":268435456,\"cards\":[\"rtx3060\",\"h100-sxm\"]}},\"infer\":null}},\
         \"train\":{{\"batch\":7,\"workspace\":0,\"lower_bound\":{lower_bound},\"weights\":16000,\"master\":0,\"gradients\":0,\
         \"optimizer\":32000,\"ema\":0,\"buffers\":8,\"batch_io\":688184,\"cache\":0,\"activations\":"
    );
    assert_eq!(found.len(), 2);
    assert!(found[0].text.starts_with(&expected), "{}", found[0].text);
    let end = format!("\"reserve\":512,\"total\":{}}},\"infer\":null}}", TRAIN.arena() + 512);
    assert!(found[0].text.ends_with(&end), "{}", found[0].text);
    assert_eq!((found[0].blueprint, found[1].blueprint), (BLUEPRINT, &[][..]));
    let infer = "\"settings\":{\"train\":null,\"infer\":{\"precision\":\"F32\",\"headroom\":0,\"cards\":[]}}";
    assert!(found[1].text.contains(infer), "{}", found[1].text);
    assert!(
        found[1].text.contains(
            r#","generic":false,"of":{"file":"a_b.rs","line":7},"fits":{"line":40,"column":7,"index":0,"count":2,"cards":["t4"]},"selected":"#
        ),
        "{}",
        found[1].text
    );
    assert_eq!(read_records(&section).collect::<Vec<_>>(), found.iter().map(|record| record.text).collect::<Vec<_>>());
}

/// Whatever byte is changed and wherever a record is cut off, nothing wrong is read.
#[test]
fn damaged_and_foreign_records_are_named() {
    let after = [&RECORD[..], &RECORD].concat();
    for at in 0..RECORD.len() {
        let mut damaged = after.clone();
        // In the digit it makes no digit: it would say of which layout the record is.
        damaged[at] ^= 0x10;
        let found: Vec<_> = records(&damaged).collect();
        let sound = found.iter().filter(|record| record.is_ok()).count();
        assert_eq!((sound, &found[..found.len() - 1]), (1, &[Err(Unreadable::Damaged)][..]), "byte {at}");
        assert_eq!(records(&RECORD[..at]).filter(|record| record.is_ok()).count(), 0, "{at} bytes");
    }
    for (digit, message) in [
        (b'1', "a record of layout 1, written by an older gpumem; this one reads layout 4"),
        (b'5', "a record of layout 5, written by a newer gpumem; this one reads layout 4"),
    ] {
        let mut other = RECORD;
        other[6] = digit;
        let found: Vec<_> = records(&other).collect();
        assert_eq!(found, [Err(Unreadable::Version(digit - b'0'))]);
        assert_eq!(found[0].unwrap_err().to_string(), message);
    }
    let message = "a damaged record: its first bytes, a length or a digest does not match";
    assert_eq!(Unreadable::Damaged.to_string(), message);
}

/// Records whose first bytes are damaged are counted one by one, and so is a stretch that is none at all.
#[test]
fn every_stretch_that_is_no_record_is_counted() {
    let mut section = [[0; 5].as_slice(), &RECORD, &RECORD, &[0; 9], &RECORD, &[1, 2, 3], &RECORD, &[0; 2]].concat();
    section[5] ^= 1;
    section[5 + RECORD.len() + 7] ^= 1;
    let sound: Vec<bool> = records(&section).map(|record| record.is_ok()).collect();
    assert_eq!(sound, [false, false, true, false, true]);
    assert_eq!(records(&[0; 40]).count(), 0);
    assert_eq!(records(&[7]).collect::<Vec<_>>(), [Err(Unreadable::Damaged)]);
}

#[test]
fn the_longest_record_is_complete_and_its_name_is_safe() {
    let mut budget = plan::<TENSORS>(&STEP, 7, Precision::F32).budget;
    (budget.lines, budget.lower_bound, budget.workspace) = ([u64::MAX; Line::COUNT], u64::MAX, u64::MAX);
    let compiled = Compiled { batch: u64::MAX, ..compiled(budget) };
    let name = format!("a\"\\\n{}", "\u{e9}".repeat(200));
    let train =
        Train { headroom: u64::MAX, conv_workspace: u64::MAX, cards: gpumem_core::cards::ALL, ..Train::DEFAULT };
    let infer = Infer { headroom: u64::MAX, cards: gpumem_core::cards::ALL, ..Infer::DEFAULT };
    let path = "\u{e9}".repeat(600);
    let text = text(&Declared {
        name: &name,
        place: (&path, u32::MAX),
        is_generic: true,
        of: Some((&path, u32::MAX)),
        fits: Some(Fits { place: [u32::MAX; 2], index: u32::MAX, count: u32::MAX, cards: gpumem_core::cards::ALL }),
        selected: gpumem_core::cards::ALL,
        train: Some(&train),
        infer: Some(&infer),
        training: Some(&compiled),
        inference: Some(&compiled),
    });
    let text = text.as_str();
    assert!(text.ends_with(&format!("\"total\":{}}}}}", u64::MAX)), "{text}");
    assert!(text.starts_with(&format!("{{\"name\":\"a___{}\",", "\u{e9}".repeat(62))), "{text}");
}

/// Transient tensors with a workspace of each kind.
const SCRATCH: [(Transient, bool); 3] = [
    ([Role::Activation as u64, 0, 1000, 0, 0, 1], false),
    ([Role::ProductWorkspace as u64, 0, 3000, 0, 0, 0], true),
    ([Role::ConvolutionWorkspace as u64, 5000, 0, 0, 1, 1], true),
];

#[test]
fn workspaces_are_capped() {
    let transients = OwnedTransients::new(SCRATCH);
    let step = with_transients(transients.as_transients());
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
    let product = |[cards, selected]: [&[Card]; 2]| {
        Workspaces::of(&TargetCards { selected, ..TargetCards::at(cards) }, 7).product >> 20
    };
    assert_eq!(product([&[], &[]]), 32);
    assert_eq!(product([&[RTX_3060], &[]]), 4);
    assert_eq!(product([&[RTX_3060], &[H100_SXM]]), 32);
    assert_eq!(product([&[], &[RTX_3060]]), 4);
    assert_eq!(Workspaces::of(&TargetCards::at(&[]), 7).convolution, 7);
}

/// What the macro packed is taken for what it gives here: the same lower bound does not make the tensors the same.
#[test]
fn an_order_that_wastes_memory_is_not_taken() {
    let tensor = |first, last| ([Role::Activation as u64, 0, 64, 0, first, last], false);
    let transients = OwnedTransients::new([tensor(0, 0), tensor(1, 1)]);
    // One above the other, as for tensors that live together.
    let together = [LiveRange { bytes: 256, first: 0, last: 1 }; 2];
    let entries = order(&together, &[0, 256]).unwrap();
    let orders = [Order { entries: &entries, size: 256, lower_bound: 256, offsets: &[], bytes: &[] }];
    let step = with_orders(&transients, &orders);
    let plan: Plan<2> = plan(&step, 1, Precision::F32);
    assert_eq!((plan.packing.size, plan.packing.lower_bound), (256, 256));
}

/// Where tensors have the bytes that the macro saw, they lie where it put them; otherwise they are placed anew, even if the sum is the same.
#[test]
fn places_are_those_of_the_macro_where_bytes_are() {
    let tensor = |fixed, per_sample| ([Role::Activation as u64, fixed, per_sample, 0, 0, 1], false);
    let transients = OwnedTransients::new([tensor(0, 64), tensor(256, 0), tensor(64, 0)]);
    let mut carried = AddressOrders::default();
    carried.add(&with_transients(transients.as_transients()), 2, Precision::F32, &[]);
    let found = carried.orders[0].as_order();
    assert_eq!(found.bytes, [512, 1024, 256]);
    let placed = |batch, order: Order<'_>| {
        let orders = [order];
        let step = with_orders(&transients, &orders);
        let plan: Plan<3> = plan(&step, batch, Precision::F32);
        assert!(verify(&live_ranges(&step, batch, Precision::F32).unwrap(), &plan.packing, ALIGNMENT));
        (plan.packing.offsets, plan.packing.size)
    };
    // As valid as what was found, and not what any packer gives.
    let other = Order { offsets: &[1280, 256, 0], ..found };
    assert_eq!(placed(2, other), ([1280, 256, 0], 1792));
    assert_ne!(placed(1, other).0, [1280, 256, 0]);
    // The same sum of other tensors, and too few places.
    assert_ne!(placed(2, Order { bytes: &[256, 1024, 512], ..other }).0, [1280, 256, 0]);
    assert_ne!(placed(2, Order { offsets: &[1280, 256], ..other }).0, [1280, 256, 0]);
}

/// An order that gives the lower bound elsewhere is not looked for again there.
#[test]
fn what_one_order_serves_is_packed_once() {
    let tensor = |per_sample, first, last| ([Role::Activation as u64, 0, per_sample, 0, first, last], false);
    let transients = OwnedTransients::new([tensor(64, 0, 1), tensor(128, 0, 1)]);
    let step = with_transients(transients.as_transients());
    // One below the other, either of which is as good: the one that the packers would not give.
    let mut found = AddressOrders::default();
    found.add(&step, 2, Precision::F32, &[]);
    let ranges = [512, 1024].map(|bytes| LiveRange { bytes, first: 0, last: 1 });
    let entries = [[0, 512], [1024, 0]].map(|offsets| order(&ranges, &offsets).unwrap());
    let other = entries.into_iter().find(|entries| *entries != found.orders[0].entries).unwrap();
    let mut carried = AddressOrders::default();
    carried.orders.push(OwnedOrder { entries: other, ..found.orders[0].clone() });
    for batch in [2, 5, 1] {
        carried.add(&step, batch, Precision::F32, &[]);
    }
    assert_eq!(carried.orders.len(), 1);
    // Sums of sizes that 64 bits do not hold are left to const evaluation, which refuses them.
    carried.add(&step, u64::MAX / 512, Precision::F32, &[]);
    assert_eq!(carried.orders.len(), 1);
}

/// Of the macro's orders the one that gives the smallest packing is taken, though one before it is close to the lower bound.
#[test]
fn the_best_order_is_taken() {
    const MANY: usize = 302;
    // Before the last two, which could share a place, others that live throughout.
    let life = |tensor| match tensor {
        301 => (1, 1),
        300 => (0, 0),
        _ => (0, 1),
    };
    let tensors = (0..MANY).map(|tensor| {
        let (first, last) = life(tensor);
        ([Role::Activation as u64, 0, 64, 0, first, last], false)
    });
    let transients = OwnedTransients::new(tensors);
    let offsets: Vec<u64> = (0..MANY as u64).map(|tensor| 256 * tensor).collect();
    let own = |tensor| LiveRange { bytes: 256, first: life(tensor).0 as u32, last: life(tensor).1 as u32 };
    let ranges: Vec<LiveRange> = (0..MANY).map(own).collect();
    // One above the other, as if they lived together, and side by side.
    let mut together = ranges.clone();
    together[300].last = 1;
    let mut shared = offsets.clone();
    shared[301] = shared[300];
    let entries = [(&together, &offsets), (&ranges, &shared)].map(|(ranges, offsets)| order(ranges, offsets).unwrap());
    let [apart, beside] =
        entries.each_ref().map(|entries| Order { entries, size: 512, lower_bound: 512, offsets: &[], bytes: &[] });
    let size = |orders: &[Order<'_>]| {
        let step = with_orders(&transients, orders);
        let plan: Plan<MANY> = plan(&step, 1, Precision::F32);
        let ranges = live_ranges(&step, 1, Precision::F32).unwrap();
        assert!(verify(&ranges, &plan.packing, ALIGNMENT));
        plan.packing.size / 256
    };
    // Close enough to leave it at that.
    assert_eq!(size(&[apart]), 302);
    assert_eq!(size(&[apart, beside]), 301);
    assert_eq!(size(&[beside, apart]), 301);
}
