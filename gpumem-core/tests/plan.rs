//! The planner against a brute-force checker, on random graphs, training steps and published instances.

use gpumem_core::memory::plan::{
    ALIGNMENT, LiveRange, Overflow, Packing, THOROUGH, below, order, pack, pack_slice, pack_slice_thoroughly,
    pack_slice_within, replay, verify, verify_slice,
};
use proptest::prelude::*;

fn range(bytes: u64, first: u32, last: u32) -> LiveRange {
    LiveRange { bytes, first, last }
}

/// Every pair of tensors, at every operation.
fn valid(ranges: &[LiveRange], offsets: &[u64], size: u64) -> bool {
    let pairs_apart = ranges.iter().enumerate().all(|(i, a)| {
        ranges.iter().enumerate().skip(i + 1).all(|(j, b)| {
            let live_together = a.first <= b.last.max(b.first) && b.first <= a.last.max(a.first);
            let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
            !live_together || apart || a.bytes == 0 || b.bytes == 0
        })
    });
    pairs_apart && ranges.iter().zip(offsets).all(|(r, offset)| offset + r.bytes <= size)
}

/// Live bytes summed anew at every operation.
fn live_bytes(ranges: &[LiveRange]) -> (u64, u32) {
    let mut peak = (0, 0);
    for r in ranges {
        let at = r.first;
        let live = ranges.iter().filter(|o| o.first <= at && at <= o.last.max(o.first)).map(|o| o.bytes).sum();
        if live > peak.0 || (live == peak.0 && live > 0 && at < peak.1) {
            peak = (live, at);
        }
    }
    peak
}

fn check(ranges: &[LiveRange]) -> f64 {
    let packed = pack_slice(ranges).unwrap();
    assert!(valid(ranges, &packed.offsets, packed.size));
    assert!(verify_slice(ranges, &packed.offsets, packed.size, 1, &[]));
    assert_eq!((packed.lower_bound, packed.peak), live_bytes(ranges));
    assert!(packed.size >= packed.lower_bound);
    packed.size as f64 / packed.lower_bound.max(1) as f64
}

fn graph(tensors: usize, operations: u32, length: u32, bytes: u64) -> impl Strategy<Value = Vec<LiveRange>> {
    let tensor = (0..=bytes, 0..=operations, 0..=length)
        .prop_map(|(bytes, first, length)| range(bytes * ALIGNMENT, first, first.saturating_add(length)));
    prop::collection::vec(tensor, 0..=tensors)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn short_lives(ranges in graph(120, 100, 4, 50)) { check(&ranges); }

    #[test]
    fn long_lives(ranges in graph(60, 40, 40, 9)) { check(&ranges); }

    #[test]
    fn few_operations(ranges in graph(40, 2, 2, 3)) { check(&ranges); }

    #[test]
    fn times_far_apart(ranges in graph(40, u32::MAX, u32::MAX, 1 << 40)) { check(&ranges); }

    #[test]
    fn lives_that_end_before_they_begin(
        ranges in prop::collection::vec((0..9u64, 0..50u32, 0..50u32), 0..60)
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(bytes, first, last)| range(bytes * ALIGNMENT, first, last)).collect();
        check(&ranges);
    }

    /// The order of a packing gives it again, and holds at any other sizes.
    #[test]
    fn an_order_holds_at_any_sizes(
        ranges in graph(120, 100, 30, 50),
        bytes in prop::collection::vec(0..90u64, 120),
    ) {
        let mut packed = pack_slice(&ranges).unwrap();
        let entries = order(&ranges, &packed.offsets).unwrap();
        let size = replay(&entries, &ranges, &mut packed.offsets);
        prop_assert!(size <= packed.size);
        prop_assert!(verify_slice(&ranges, &packed.offsets, size, ALIGNMENT, &[]));
        let others: Vec<_> =
            ranges.iter().zip(&bytes).map(|(&range, bytes)| LiveRange { bytes: bytes * ALIGNMENT, ..range }).collect();
        let size = replay(&entries, &others, &mut packed.offsets);
        prop_assert!(verify_slice(&others, &packed.offsets, size, ALIGNMENT, &[]));
        prop_assert!(valid(&others, &packed.offsets, size));
    }

    /// The check must agree with brute force on wrong packings too.
    #[test]
    fn verification_catches_every_damage(
        ranges in graph(30, 20, 10, 6),
        damage in prop::collection::vec((0..30usize, 0..40u64), 1..6),
        shrink in 0..3u64,
        anywhere in prop::collection::vec(0..40u32, 30),
    ) {
        let mut in_time = ranges.clone();
        in_time.sort_by_key(|range| range.first);
        // In any order, and in that of time, in which tables have them.
        for ranges in [ranges, in_time] {
            agrees(&ranges, &damage, shrink, &anywhere[..ranges.len()])?;
        }
    }
}

/// The check of a damaged packing says what is so, wherever it looks first.
fn agrees(ranges: &[LiveRange], damage: &[(usize, u64)], shrink: u64, anywhere: &[u32]) -> Result<(), TestCaseError> {
    let beneath = |offsets: &[u64]| below(&order(ranges, offsets).unwrap(), ranges.len());
    let mut packed = pack_slice(ranges).unwrap();
    let before = beneath(&packed.offsets);
    for &(at, offset) in damage {
        if at < ranges.len() {
            packed.offsets[at] = offset * ALIGNMENT;
        }
    }
    let size = packed.size.saturating_sub(shrink * ALIGNMENT);
    let all_inside = ranges.iter().zip(&packed.offsets).all(|(r, o)| o + r.bytes <= size);
    let is_valid = all_inside && valid(ranges, &packed.offsets, size);
    for below in [&[], &before[..], &beneath(&packed.offsets), anywhere] {
        prop_assert_eq!(verify_slice(ranges, &packed.offsets, size, ALIGNMENT, below), is_valid);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// A packing that stops at `enough` bytes is sound, and takes no more than that if the smallest packing takes no more.
    #[test]
    fn a_packing_within_enough_bytes(ranges in graph(80, 100, 30, 50), slack in 0..40u64) {
        let best = pack_slice(&ranges).unwrap();
        for enough in [best.size + slack * ALIGNMENT, best.lower_bound, u64::MAX] {
            let packed = pack_slice_within(&ranges, enough).unwrap();
            prop_assert!(valid(&ranges, &packed.offsets, packed.size));
            prop_assert_eq!((packed.lower_bound, packed.peak), (best.lower_bound, best.peak));
            prop_assert!(packed.size <= enough.max(best.size), "{} of {enough}, {}", packed.size, best.size);
        }
    }

    /// A thorough search is sound, no larger than the quick one, and the same each time.
    #[test]
    fn thorough_packings(ranges in graph(60, 60, 40, 50)) {
        let quick = pack_slice(&ranges).unwrap();
        let packed = pack_slice_thoroughly(&ranges, 1_000_000).unwrap();
        prop_assert!(valid(&ranges, &packed.offsets, packed.size));
        prop_assert!(verify_slice(&ranges, &packed.offsets, packed.size, ALIGNMENT, &[]));
        prop_assert_eq!((packed.lower_bound, packed.peak), (quick.lower_bound, quick.peak));
        prop_assert!(packed.size <= quick.size && packed.size >= quick.lower_bound);
        prop_assert_eq!(packed, pack_slice_thoroughly(&ranges, 1_000_000).unwrap());
    }

    #[test]
    fn many_tensors(ranges in graph(700, 300, 30, 50)) { check(&ranges); }
}

#[test]
fn verification_sees_misalignment_and_wrong_lengths() {
    let ranges = [range(256, 0, 1), range(256, 1, 2)];
    assert!(verify_slice(&ranges, &[0, 256], 512, 256, &[]));
    assert!(verify_slice(&ranges, &[0, 257], 600, 1, &[]));
    assert!(!verify_slice(&ranges, &[0, 257], 600, 256, &[]));
    assert!(!verify_slice(&ranges, &[0, 256], 511, 256, &[]));
    assert!(!verify_slice(&ranges, &[0], 512, 256, &[]));
    assert!(!verify_slice(&ranges, &[0, u64::MAX - 255], u64::MAX, 256, &[]));
    assert!(!verify_slice(&ranges, &[0, 256], 512, 0, &[]));
}

#[test]
fn nothing_and_one_tensor() {
    assert_eq!(pack(&[]), Ok(Packing { offsets: [], size: 0, lower_bound: 0, peak: 0 }));
    assert_eq!(pack(&[range(512, 7, 7)]), Ok(Packing { offsets: [0], size: 512, lower_bound: 512, peak: 7 }));
    assert_eq!(pack(&[range(0, 7, 9)]), Ok(Packing { offsets: [0], size: 0, lower_bound: 0, peak: 0 }));
}

#[test]
fn sums_past_64_bits_are_an_error() {
    let half = 1 << 63;
    assert_eq!(pack(&[range(half, 0, 1), range(half, 1, 2)]), Err(Overflow));
    assert_eq!(pack_slice(&[range(half, 0, 1), range(half, 5, 6)]), Err(Overflow));
    assert_eq!(pack(&[range(u64::MAX - 255, 0, 1)]).unwrap().size, u64::MAX - 255);
}

#[test]
fn const_and_run_time_agree() {
    const RANGES: [LiveRange; 60] = training(5);
    const PACKING: Packing<60> = match pack(&RANGES) {
        Ok(packing) => packing,
        Err(_) => panic!("overflow"),
    };
    const _: () = assert!(verify(&RANGES, &PACKING, ALIGNMENT));
    let packed = pack_slice(&RANGES).unwrap();
    assert_eq!(packed.offsets, PACKING.offsets);
    assert_eq!(packed.size, PACKING.lower_bound);
}

/// A chain of convolution, normalisation and activation, trained: per group what the three layers keep, the gradients
/// between them, and the gradient of the convolution's weights, consumed by its update right away.
const fn training<const N: usize>(seed: u64) -> [LiveRange; N] {
    let groups = N as u32 / 6;
    let turn = groups * 3;
    let mut ranges = [LiveRange { bytes: 0, first: 0, last: 0 }; N];
    let mut state = seed;
    let mut group = 0;
    while group < groups {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = (1 + (state >> 40) % 5000) * 256;
        let weights = (1 + (state >> 20) % 2000) * 256;
        let forward = group * 3;
        // Four operations a group: backward of activation, of normalisation, of convolution, update.
        let backward = turn + (groups - 1 - group) * 4;
        let at = group as usize * 6;
        ranges[at] = LiveRange { bytes, first: forward, last: backward + 1 };
        ranges[at + 1] = LiveRange { bytes: 256, first: forward + 1, last: backward + 1 };
        ranges[at + 2] =
            LiveRange { bytes, first: forward + 2, last: if group + 1 == groups { backward } else { backward - 2 } };
        ranges[at + 3] =
            LiveRange { bytes, first: if group + 1 == groups { turn } else { backward - 2 }, last: backward + 1 };
        ranges[at + 4] = LiveRange { bytes, first: backward + 1, last: backward + 2 };
        ranges[at + 5] = LiveRange { bytes: weights, first: backward + 2, last: backward + 3 };
        group += 1;
    }
    ranges
}

/// A chain of small tensors, each of which begins while the one before it lives, below which a large one stays: no stack gets to its end.
#[test]
fn what_is_no_stack_is_packed() {
    let mut ranges = vec![range(1000 * 256, 0, 10_000)];
    ranges.extend((0..45).map(|_| range(256, 0, 3)));
    ranges.push(range(155 * 256, 1, 1));
    ranges.extend((0..200).map(|k| range(4 * 256, 10 + k, 50 + k)));
    assert!(check(&ranges) < 1.2);
}

/// Sizes here are random from layer to layer, which is harder than any real network.
#[test]
fn training_steps_pack_to_the_bound() {
    for seed in 0..20 {
        let (small, large) = (check(&training::<120>(seed)), check(&training::<1200>(seed)));
        println!("seed {seed}: {small:.5} and {large:.5} of the bound");
        assert!(small <= 1.01 && large <= 1.01);
    }
}

/// Reads a published instance.
fn published(name: &str) -> Vec<LiveRange> {
    let path = format!("{}/tests/data/planner/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let mut reader = csv::Reader::from_path(path).unwrap();
    let rows = reader.deserialize().map(|row| {
        let (_, lower, upper, size): (String, u32, u32, u64) = row.unwrap();
        range(size, lower, upper - 1)
    });
    rows.collect()
}

/// Packed size over the largest live sum of the published instances, as measured and rounded up. The first five are
/// adversarially hard: a long search solves most of them at 1.00, and packers without search need 16 to 62 % more.
#[test]
fn published_instances() {
    let recorded = [
        ("B.1048576", 1.038),
        ("D.1048576", 1.047),
        ("F.1048576", 1.038),
        ("H.1048576", 1.0),
        ("J.1048576", 1.04),
        ("G_1", 1.0003),
        ("input.12", 1.0),
    ];
    for (name, most) in recorded {
        let ranges = published(name);
        let ratio = check(&ranges);
        println!("{name}: {} tensors, {ratio:.4} of the bound", ranges.len());
        assert!(ratio <= most, "{name}: {ratio:.4}, recorded {most}");
    }
}

/// Checks packings of a thorough search with so many looks against recorded ratios.
fn check_thorough(looks: u64, recorded: &[(&str, f64)]) {
    for &(name, most) in recorded {
        let ranges = published(name);
        let packed = pack_slice_thoroughly(&ranges, looks).unwrap();
        assert!(valid(&ranges, &packed.offsets, packed.size), "{name}");
        let ratio = packed.size as f64 / packed.lower_bound as f64;
        println!("{name}: {ratio:.4} of the bound");
        assert!(ratio <= most, "{name}: {ratio:.4}, recorded {most}");
    }
}

#[test]
fn published_instances_with_few_looks() {
    let recorded = [
        ("B.1048576", 1.0),
        ("D.1048576", 1.047),
        ("F.1048576", 1.038),
        ("H.1048576", 1.0),
        ("J.1048576", 1.04),
        ("G_1", 1.0003),
        ("input.12", 1.0),
    ];
    check_thorough(120_000_000, &recorded);
}

/// The whole search, in seconds for each instance.
#[test]
#[ignore = "takes half a minute"]
fn published_instances_with_all_looks() {
    let recorded =
        [("B.1048576", 1.0), ("D.1048576", 1.0295), ("F.1048576", 1.007), ("H.1048576", 1.0), ("J.1048576", 1.0295)];
    check_thorough(THOROUGH, &recorded);
}

#[test]
fn a_thorough_search_begins_with_the_quick_one() {
    assert_eq!(pack_slice_thoroughly(&[range(1 << 63, 0, 1), range(1 << 63, 5, 6)], 1000), Err(Overflow));
    assert_eq!(pack_slice_thoroughly(&[], 1000), pack_slice(&[]));
    let ranges = published("B.1048576");
    assert_eq!(pack_slice_thoroughly(&ranges, 0).unwrap().size, pack_slice(&ranges).unwrap().size);
}

/// Sizes of nearly 64 bits in sum overflow nowhere.
#[test]
fn thorough_packings_of_large_sizes() {
    let mut ranges = published("D.1048576");
    let sum: u64 = ranges.iter().map(|range| range.bytes).sum();
    for range in &mut ranges {
        range.bytes *= u64::MAX / sum;
    }
    let packed = pack_slice_thoroughly(&ranges, 3_000_000).unwrap();
    assert!(valid(&ranges, &packed.offsets, packed.size));
}
