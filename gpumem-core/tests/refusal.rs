//! The texts of refusals, word by word.

mod chain;

use chain::{Chain, TENSORS};
use gpumem_core::cards::{A100_80GB, Card, GTX_1650, K80, RTX_3060, RTX_3090, T4};
use gpumem_core::memory::budget::{Line, Plan, plan, plan_within};
use gpumem_core::memory::levels::check_budget;
use gpumem_core::memory::live_ranges::OwnedTransients;
use gpumem_core::memory::plan::{AddressOrders, OwnedOrder};
use gpumem_core::memory::refusal::{check, check_together, largest, limit, refusal, together};
use gpumem_core::memory::tables::{Paths, Tables, Transients};
use gpumem_core::memory::target_cards::{Environment, TargetCards, UNCHECKED};
use gpumem_core::{Checkpoint, Precision, Role};

/// 46 million parameters a layer, 12 million elements a sample and layer.
static CHAIN: Chain = Chain::new(46_000_000, 12_000_000);
static PARAMETERS: [[u64; 4]; 1] = chain::parameters(46_000_000);
static STEP: Tables = chain::step(&CHAIN, &PARAMETERS);

fn text(
    step: &Tables,
    batch: u64,
    cards: &[Card],
    selected: &[Card],
    vram: Option<&str>,
    headroom: u64,
) -> Option<String> {
    let environment = Environment { vram, ..Environment::NONE };
    limited(step, batch, &TargetCards { selected, headroom, environment, ..TargetCards::at(cards) })
}

fn limited(step: &Tables, batch: u64, target_cards: &TargetCards<'_>) -> Option<String> {
    let plan: Plan<TENSORS> = plan(step, batch, Precision::F32);
    let text = refusal("Chain", step, &plan, target_cards)?;
    println!("{}\n", text.as_str());
    assert!(text.as_str().lines().all(|line| line.trim_end() == line));
    Some(text.as_str().to_string())
}

fn refused(batch: u64, cards: &[Card]) -> String {
    text(&STEP, batch, cards, &[], None, 0).unwrap()
}

#[test]
fn what_fits_is_not_refused() {
    assert_eq!(text(&STEP, 16, &[RTX_3060, T4], &[RTX_3090], Some("11.5GiB"), 0), None);
    assert_eq!(text(&STEP, 1 << 20, &[], &[], None, 0), None);
}

/// A share of activations is refused where the leanest step has more of them, and not where it is the cards that it is too large for.
#[test]
fn a_share_of_activations() {
    let plan: Plan<TENSORS> = plan(&STEP, 16, Precision::F32);
    let least = plan.budget[Line::Activations];
    let target_cards = TargetCards::at(&[GTX_1650]);
    let check = |without| check_budget("Chain", Checkpoint::Budget(0.5), without, &plan, &target_cards);
    check(2 * least);
    let panic = std::panic::catch_unwind(|| check(least)).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.ends_with("`Budget(..)` gives it 2.23 GiB: give it a larger share"), "{message}");
}

#[test]
fn one_card() {
    assert_eq!(
        refused(48, &[RTX_3060]),
        "\
network `Chain` needs 15.38 GiB but an RTX 3060 has 11.63 GiB (over by 3.75 GiB)
  weights       701.9 MiB    optimizer     1.37 GiB
  gradients           0 B    activations  13.05 GiB
  reserve       279.0 MiB
  aimed by      `cards:` (RTX 3060)
  peak at       backward of head
  largest       stage[0].conv2d[0] output   2.15 GiB
  fits with     precision: Mixed(Bf16)
                batch 34
  fits on       RTX 5060 Ti 16GB, RTX 5080 Laptop, Quadro RTX 5000, RTX 4070 Ti SUPER, RTX 4080 SUPER, ... at this batch"
    );
}

#[test]
fn the_batch_printed_is_the_largest_that_fits() {
    let text = refused(4096, &[RTX_3060]);
    let batch: u64 = text.split("  batch ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let fits = |batch| plan::<TENSORS>(&STEP, batch, Precision::F32).arena() <= RTX_3060.usable() - RTX_3060.reserve();
    assert!(fits(batch) && !fits(batch + 1), "{batch}");
}

/// Where a batch is split it is a multiple of its parts.
#[test]
fn the_batch_printed_has_whole_parts() {
    for parts in [2, 3, 4, 64] {
        let split = STEP.with_micro_batches(parts);
        for batch in [40 * parts, 4096 * parts] {
            let text = text(&split, batch, &[RTX_3060], &[], None, 0).unwrap();
            let found = text.split("  batch ").nth(1).unwrap().split_whitespace().next().unwrap();
            let found: u64 = found.parse().unwrap();
            assert_eq!(found, 34 * parts, "{text}");
        }
        assert_eq!(text(&split, 34 * parts, &[RTX_3060], &[], None, 0), None);
    }
}

/// With master copies, the parts of a batch have sums in f32, so that the step is another one.
#[test]
fn another_step_is_not_planned_from_these_tables() {
    let refused = |tables: &Tables| text(tables, 40 * tables.micro_batches, &[RTX_3060], &[], None, 0).unwrap();
    assert!(refused(&STEP).contains("  precision: Mixed(Bf16)\n"));
    let split = refused(&STEP.with_micro_batches(2));
    assert!(split.contains("  precision: Bf16\n") && !split.contains("Mixed"), "{split}");
}

#[test]
fn three_cards_are_named_once_each_by_size() {
    let text = text(&STEP, 96, &[T4, RTX_3060], &[RTX_3060, RTX_3090, A100_80GB, T4], None, 0).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("but an RTX 3060 has 11.63 GiB (over by"), "{text}");
    assert!(lines[1].starts_with("  and needs ") && lines[1].contains("but a T4 has 14.56 GiB (over by"), "{text}");
    assert!(lines[2].contains("but an RTX 3090 has"), "{text}");
    assert!(lines[3].starts_with("  weights"), "{text}");
}

#[test]
fn more_cards_than_are_named() {
    let cards: Vec<Card> = gpumem_core::cards::ALL.iter().filter(|card| card.runs()).copied().collect();
    let text = text(&STEP, 96, &cards, &[], None, 0).unwrap();
    assert!(text.contains("\n  and does not fit "), "{text}");
    assert!(text.contains("\n  fits on "), "{text}");
}

/// A K80 has room for it, and the CUDA backend does not run on one.
#[test]
fn cards_that_nothing_runs_on_are_not_offered() {
    let text = refused(27, &[GTX_1650]);
    assert!(text.contains("fits on       RTX 2080 Ti, GTX 1080 Ti, RTX 5070, "), "{text}");
}

/// Whoever asks for it, a card that the backend does not run on is refused, whether the network would fit or not.
#[test]
fn cards_that_nothing_runs_on_are_refused() {
    const WHY: &str = "a K80 has compute capability 3.7, and the CUDA backend needs 6.0 or newer: name another card";
    let said = |cards: &[Card], selected: &[Card], named: Option<&str>| {
        let environment = Environment { cards: named, ..Environment::NONE };
        limited(&STEP, 1, &TargetCards { selected, environment, ..TargetCards::at(cards) })
    };
    assert_eq!(said(&[RTX_3060, K80], &[], None), Some(format!("`cards:`: {WHY}")));
    assert_eq!(said(&[], &[K80], None), Some(format!("Cargo feature `k80`: {WHY}")));
    assert_eq!(said(&[RTX_3060], &[], Some("t4, K80")), Some(format!("GPUMEM_CARDS: {WHY}")));
    // The variable takes the place of the others.
    assert_eq!(said(&[K80], &[K80], Some("t4")), None);
    let target_cards = TargetCards::at(&[K80]);
    assert_eq!(together(&[("A", 1)], &target_cards).unwrap().as_str(), format!("`cards:`: {WHY}"));
    // `cargo gpumem` builds without the check, and reports such cards itself.
    let environment = Environment { unchecked: Some(UNCHECKED), ..Environment::NONE };
    assert_eq!(TargetCards { environment, ..target_cards }.room(), u64::MAX);
}

/// The reserve and the headroom may leave a card nothing: then it is not the weights that are too large.
#[test]
fn a_card_that_the_reserve_takes_has_no_room_for_any_network() {
    let text = |headroom| text(&STEP, 4, &[], &[], Some("240MiB"), headroom).unwrap();
    let least = "\n  no batch      context, modules and library handles take 512.0 MiB";
    assert!(text(0).contains(&format!("{least}: nothing is left for a network")), "{}", text(0));
    assert!(text(0).contains("\n  fits with     nothing: aim at a larger card"), "{}", text(0));
    let small = text(3 << 20);
    assert!(small.contains(&format!("{least} and `headroom` 3.0 MiB: nothing is left for a network")), "{small}");
    assert!(small.contains("\n  fits with     nothing: leave less headroom, or aim at a larger card"), "{small}");
}

#[test]
fn weights_alone_too_large() {
    static LARGE: [[u64; 4]; 1] = chain::parameters(400_000_000);
    let step = Tables { parameters: &LARGE, ..STEP };
    let text = text(&step, 4, &[RTX_3060], &[], None, 0).unwrap();
    assert!(text.contains("\n  no batch      weights and optimizer alone need 17.88 GiB beside the reserve of 279.0 MiB; no batch fits"), "{text}");
    assert!(text.contains("\n  fits with     precision: Bf16\n"), "{text}");
}

#[test]
fn one_sample_too_large() {
    static LARGE: Chain = Chain::new(1000, 900_000_000);
    let step = Tables { transients: LARGE.transients(), parameters: &[[Role::Weight as u64, 1000, 1, 1]], ..STEP };
    let text = text(&step, 1, &[RTX_3060], &[], None, 0).unwrap();
    assert!(
        text.contains("\n  no batch      one sample alone needs 20.12 GiB beside the reserve of 279.0 MiB"),
        "{text}"
    );
    let large = Tables { paths: Paths::NONE, operation_tags: &[], ..step };
    let plan: Plan<TENSORS> = plan(&large, 8, Precision::F32);
    let text = refusal("X", &large, &plan, &TargetCards::at(&[RTX_3060])).unwrap();
    assert!(text.as_str().contains("fits with     nothing that was planned"), "{}", text.as_str());
    assert!(text.as_str().contains("fits on       B200 at this batch"), "{}", text.as_str());
}

#[test]
fn inference_has_its_own_words() {
    let step = Tables { training: false, moments: 0, ..STEP };
    let text = text(&step, 64, &[RTX_3060], &[], None, 0).unwrap();
    assert!(text.starts_with("inference of network `Chain` needs "), "{text}");
    assert!(!text.contains("optimizer") && !text.contains("gradients") && !text.contains("Mixed"), "{text}");
}

/// Keys and values of 32 layers, of which there are too many: the longest cache that fits is named, and it does fit.
#[test]
fn a_cache_too_long() {
    const STEPS: u64 = 350_000;
    static CACHES: [[u64; 4]; 1] = [[Role::Activation as u64, 256, STEPS, 64]];
    let small = Tables { training: false, moments: 0, parameters: &[[Role::Weight as u64, 1000, 1, 1]], ..STEP };
    let step = Tables { caches: &CACHES, ..small };
    let text = text(&step, 1, &[RTX_3060], &[], None, 0).unwrap();
    assert!(text.contains("cache         21.36 GiB"), "{text}");
    let (_, rest) = text.split_once("\n  fits with     cache: ").unwrap();
    let steps: u64 = rest.split([' ', '\n']).next().unwrap().parse().unwrap();
    let needs = |steps: u64| {
        let caches = &[[Role::Activation as u64, 256, steps, 64]];
        let plan: Plan<TENSORS> = plan(&Tables { caches, ..small }, 1, Precision::F32);
        assert_eq!(plan.budget[Line::Cache], steps * 256 * 4 * 64);
        plan.arena() + RTX_3060.reserve()
    };
    assert!(needs(steps) <= RTX_3060.usable() && needs(steps + 2) > RTX_3060.usable(), "{steps}");
    assert!(text.contains("precision: Bf16"), "{text}");
}

#[test]
fn memory_given_by_the_user() {
    let short = text(&STEP, 16, &[], &[], Some("4.5 GiB"), 0).unwrap();
    assert!(short.contains("but the card of GPUMEM_VRAM has 4.50 GiB (over by"), "{short}");
    assert!(short.contains("\n  aimed by      GPUMEM_VRAM\n"), "{short}");
    let several = text(&STEP, 16, &[], &[], Some(" 4.5 GiB, ,5GiB,64GiB,"), 0).unwrap();
    assert!(
        several.contains("card of GPUMEM_VRAM has 4.50 GiB") && several.contains("has 5.00 GiB (over"),
        "{several}"
    );
    assert!(several.contains("\n  aimed by      GPUMEM_VRAM, GPUMEM_VRAM\n"), "{several}");
    assert_eq!(text(&STEP, 1 << 20, &[], &[], Some("  "), 0), None, "an empty variable is none");
    assert_eq!(
        text(&STEP, 16, &[], &[], Some("4.5G"), 0).unwrap(),
        "GPUMEM_VRAM is `4.5G`: the unit is unknown: write B, KiB, MiB, GiB (1024s) or KB, MB, GB (1000s), as in 11.5GiB"
    );
}

#[test]
fn headroom_counts() {
    let plan: Plan<TENSORS> = plan(&STEP, 16, Precision::F32);
    let spare = RTX_3060.usable() - RTX_3060.reserve() - plan.arena();
    assert_eq!(text(&STEP, 16, &[RTX_3060], &[], None, spare), None);
    let text = text(&STEP, 16, &[RTX_3060], &[], None, spare + (1 << 29)).unwrap();
    assert!(text.contains(" headroom (over by 512.0 MiB)"), "{text}");
    assert!(text.contains("  batch 1"), "{text}");
}

#[test]
fn more_headroom_than_the_card_has() {
    let text = text(&STEP, 16, &[RTX_3060], &[], None, RTX_3060.usable() + (1 << 30)).unwrap();
    let total = plan::<TENSORS>(&STEP, 16, Precision::F32).arena() + RTX_3060.reserve();
    let over = gpumem_core::message::Message::<32>::new().bytes(total + (1 << 30)).as_str().to_string();
    assert!(text.contains(&format!("less 12.63 GiB headroom (over by {over})")), "{text}");
    assert!(text.contains("fits with     nothing: leave less headroom, or aim at a larger card"), "{text}");
    let least =
        "context, modules and library handles take 279.0 MiB and `headroom` 12.63 GiB: nothing is left for a network";
    assert!(text.contains(&format!("\n  no batch      {least}")), "{text}");
}

#[test]
fn no_plan() {
    assert_eq!(
        text(&STEP, 0, &[], &[], None, 0).unwrap(),
        "network `Chain`: batch is 0: write the number of samples in a step, at least 1"
    );
    assert_eq!(
        text(&STEP, u64::MAX, &[], &[], None, 0).unwrap(),
        "network `Chain`: its bytes at batch 18446744073709551615 do not fit 63 bits: no card comes near; lower `batch` or \
         the sizes of the layers"
    );
    assert!(text(&Tables { operations: 0, ..STEP }, 1, &[], &[], None, 0).unwrap().contains("is empty"));
}

#[test]
fn refuses_in_const_evaluation() {
    const SMALL: Plan<TENSORS> = plan(&STEP, 4, Precision::F32);
    const _: () = check("Chain", &STEP, &SMALL, &TargetCards::at(&[RTX_3060, T4]));
    const LARGE: Plan<TENSORS> = plan(&STEP, 48, Precision::F32);
    const TEXT: gpumem_core::memory::refusal::Text =
        match refusal("Chain", &STEP, &LARGE, &TargetCards::at(&[RTX_3060])) {
            Some(text) => text,
            None => panic!("fits"),
        };
    assert_eq!(TEXT.as_str(), refused(48, &[RTX_3060]));
}

#[test]
fn what_lasts_is_named_as_it_is() {
    for (moments, holds_gradients, named) in [
        (0, false, "weights"),
        (1, false, "weights and optimizer"),
        (0, true, "weights and gradients"),
        (2, true, "weights, gradients and optimizer"),
    ] {
        let step = Tables { moments, holds_gradients, ..STEP };
        let text = text(&step, 1, &[], &[], Some("600MiB"), 0).unwrap();
        assert!(text.contains(&format!("\n  no batch      {named} alone need ")), "{text}");
    }
}

#[test]
fn no_card_is_large_enough() {
    let text = refused(1 << 20, &[RTX_3060]);
    assert!(text.ends_with("\n  fits on       no card in the table"), "{text}");
}

fn from_outside(environment: Environment<'_>) -> Option<String> {
    limited(&STEP, 48, &TargetCards { selected: &[T4], headroom: 1 << 20, environment, ..TargetCards::at(&[RTX_3060]) })
}

#[test]
fn every_card_names_who_asked_for_it() {
    let text = from_outside(Environment { vram: Some("9GiB"), ..Environment::NONE }).unwrap();
    let expected = "\n  aimed by      GPUMEM_VRAM, `cards:` (RTX 3060), Cargo feature `t4` (T4)\n";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn cards_from_outside_replace_those_that_are_written() {
    let cards = |cards| from_outside(Environment { cards: Some(cards), ..Environment::NONE });
    assert_eq!(cards("a100-80gb, RTX_3090"), None);
    let text = cards("rtx3060ti,A100_80GB").unwrap();
    assert!(text.contains("but an RTX 3060 Ti has") && !text.contains("and needs"), "{text}");
    assert!(text.contains("\n  aimed by      GPUMEM_CARDS (RTX 3060 Ti)\n"), "{text}");
    assert!(cards("").unwrap().contains("aimed by      `cards:` (RTX 3060), Cargo feature `t4` (T4)\n"));
    assert_eq!(
        cards("t4,toaster").unwrap(),
        "GPUMEM_CARDS names `toaster`, which is no card: see `gpumem::cards` for their names, or give a size with \
         GPUMEM_VRAM=11.5GiB"
    );
    assert_eq!(cards(&"t4,".repeat(65)).unwrap(), "GPUMEM_CARDS names more than 64: leave some out");
}

#[test]
fn headroom_from_outside_is_the_larger_one() {
    let headroom = |headroom| from_outside(Environment { headroom: Some(headroom), ..Environment::NONE }).unwrap();
    assert!(headroom("2GiB").contains("has 11.63 GiB less 2.00 GiB headroom"));
    assert!(headroom("0.5MiB").contains("has 11.63 GiB less 1.0 MiB headroom"));
    assert!(headroom("0B").contains("less 1.0 MiB headroom"));
    assert_eq!(
        headroom("2"),
        "GPUMEM_HEADROOM is `2`: the unit is missing: write B, KiB, MiB, GiB, KB, MB or GB after the number, as in 11.5GiB"
    );
}

#[test]
#[should_panic(expected = "network `Chain` needs 15.38 GiB")]
fn the_check_is_left_out_for_a_tool_only() {
    let plan: Plan<TENSORS> = plan(&STEP, 48, Precision::F32);
    let target_cards = |unchecked| TargetCards {
        environment: Environment { unchecked, ..Environment::NONE },
        ..TargetCards::at(&[RTX_3060])
    };
    check("Chain", &STEP, &plan, &target_cards(Some(UNCHECKED)));
    check("Chain", &STEP, &plan, &target_cards(Some("1")));
}

/// A chain of `N` tensors, each alive with its neighbours, as the macro writes it or without what it packed: the plan's limit, the plan,
/// and the refusal.
fn long<const N: usize>(target_cards: &TargetCards<'_>, is_carried: bool) -> (u64, Plan<N>, Option<String>) {
    let tensor = |at: u64| [Role::Activation as u64, 0, 10_000_000, 0, at, (at + 2).min(N as u64 - 1)];
    let transients = OwnedTransients::new((0..N as u64).map(|at| (tensor(at), false)));
    let tables = Tables { operations: N as u64, transients: transients.as_transients(), ..STEP };
    let mut carried = AddressOrders::default();
    if is_carried {
        carried.add(&tables, 32, Precision::F32, &[]);
    }
    let orders: Vec<_> = carried.orders.iter().map(OwnedOrder::as_order).collect();
    let transients = Transients { orders: &orders, below: &carried.below, ..tables.transients };
    let tables = Tables { transients, ..tables };
    let limit = limit(N, target_cards);
    let plan: Plan<N> = plan_within(&tables, 256, Precision::F32, limit);
    let text = refusal("Long", &tables, &plan, target_cards).map(|text| text.as_str().to_string());
    (limit, plan, text)
}

const ASK: &str = "\n  more          takes long to search here: ask `cargo gpumem fit Long`";

/// Where packing takes seconds, nothing is packed that the lower bound refuses, but for what the macro packed.
#[test]
fn large_networks_are_refused_before_they_are_packed() {
    let target_cards = TargetCards::at(&[RTX_3060, A100_80GB]);
    let room = RTX_3060.usable() - RTX_3060.reserve();

    let (limit, plan, text) = long::<1500>(&target_cards, false);
    assert_eq!((limit, plan.is_packed), (u64::MAX, true));
    let text = text.unwrap();
    assert!(text.starts_with("network `Long` needs 30.9"), "{text}");

    let (limit, plan, text) = long::<1600>(&target_cards, true);
    let text = text.unwrap();
    assert_eq!((limit, plan.is_packed, plan.arena()), (room, true, plan.budget.lower_bound));
    assert!(text.starts_with("network `Long` needs 30.9"), "{text}");
    assert!(text.contains("\n  fits with     batch 83\n  fits on "), "{text}");

    let (_, plan, text) = long::<1600>(&target_cards, false);
    let text = text.unwrap();
    assert!(!plan.is_packed && text.starts_with("network `Long` needs at least 30.9"), "{text}");
    assert!(!text.contains("fits with") && !text.contains("fits on") && text.ends_with(ASK), "{text}");

    let (_, plan, text) = long::<4001>(&target_cards, true);
    let text = text.unwrap();
    assert!(!plan.is_packed && text.starts_with("network `Long` needs at least 30.9"), "{text}");
    assert!(!text.contains("fits with") && !text.contains("fits on"), "{text}");
    assert!(text.contains("largest ") && text.contains("aimed by") && text.ends_with(ASK), "{text}");
    assert_eq!(plan.budget[Line::Arena], plan.budget.lower_bound);

    // What fits is packed; so is what is not checked.
    let unchecked =
        TargetCards { environment: Environment { unchecked: Some(UNCHECKED), ..Environment::NONE }, ..target_cards };
    for target_cards in [TargetCards::at(&[A100_80GB]), TargetCards::at(&[]), unchecked] {
        assert!(long::<1600>(&target_cards, false).1.is_packed);
    }
}

/// One process has one reserve, whatever it runs.
#[test]
fn networks_on_one_card() {
    let fits = RTX_3060.usable() - RTX_3060.reserve();
    let target_cards = TargetCards { headroom: largest(&[1 << 20, 3 << 20, 0]), ..TargetCards::at(&[RTX_3060]) };
    assert!(together(&[("A", fits - (4 << 20)), ("B", 1 << 20)], &target_cards).is_none());
    let text = together(&[("A", fits - (4 << 20)), ("B", 1 << 20), ("C", 256)], &target_cards).unwrap();
    assert_eq!(
        text.as_str(),
        "\
networks `A`, `B` and `C` together need 11.62 GiB but an RTX 3060 has 11.63 GiB less 3.0 MiB headroom (over by 256 B)
  A             11.35 GiB
  B             1.0 MiB
  C             256 B
  reserve       279.0 MiB
  fits on       TITAN V, TITAN Xp, TITAN X (Pascal), Jetson Orin NX 16GB, Jetson AGX Xavier 16GB, ... at this batch"
    );
    let target_cards = TargetCards { selected: &[T4, RTX_3060], ..TargetCards::at(&[]) };
    let text = together(&[("A", 20 << 30)], &target_cards).unwrap();
    assert!(text.as_str().starts_with("network `A` needs 20.27 GiB but an RTX 3060 has "), "{}", text.as_str());
    assert!(text.as_str().contains("\n  and needs 20.24 GiB but a T4 has 14.56 GiB (over by "), "{}", text.as_str());
    assert!(text.as_str().contains("\n  aimed by      Cargo feature `rtx3060` (RTX 3060), Cargo feature `t4` (T4)\n"));
    let bad = TargetCards { environment: Environment { vram: Some("4"), ..Environment::NONE }, ..TargetCards::at(&[]) };
    assert!(together(&[], &bad).unwrap().as_str().starts_with("GPUMEM_VRAM is `4`: the unit is missing"));
    assert!(together(&[], &TargetCards::at(&[RTX_3060])).is_none());
    let tool = Environment { unchecked: Some(UNCHECKED), ..Environment::NONE };
    check_together(&[("A", u64::MAX)], &TargetCards { environment: tool, ..TargetCards::at(&[RTX_3060]) });
}

/// Unified memory: what a card has is what the host leaves.
#[test]
fn what_stays_with_the_host_is_said() {
    let text = refused(48, &[gpumem_core::cards::JETSON_ORIN_NX_8GB]);
    assert!(text.contains(" has 5.12 GiB beside 2.00 GiB for the host (over by "), "{text}");
}
