//! Writes the table of `docs/guide/making-it-fit.md`: arenas of well-known networks with each way to save memory.
#![allow(missing_docs)]

mod pages;

use gpumem::cards::RTX_3060;
use gpumem::{Checkpoint, Half, Line, Network, Offload, Precision, Train};
use gpumem_core::lower::{Blueprint, Fitted, Leaner, Sizes, tables};
use gpumem_core::memory::budget::{Budget, budget_at};
use gpumem_core::memory::levels::budget_room;
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::memory::target_cards::TargetCards;
use gpumem_core::program::loss::Chunks;
use gpumem_core::program::{Action, Program, Slot};
use gpumem_core::train::optim::{AdamW, AdamW8bit, Optimizer};
use gpumem_zoo::gpt2::{Gpt2, Gpt2Xl};
use gpumem_zoo::llama::Llama1B;
use gpumem_zoo::resnet::ResNet50;
use gpumem_zoo::unet::UNet;
use gpumem_zoo::vgg::Vgg16;

/// Parts of a batch.
const PARTS: u64 = 4;

const MIXED: Precision = Precision::Mixed(Half::Bf16);

/// The training step of a network with an optimizer.
fn blueprint<N: Network>(optimizer: Optimizer, checkpoint: Checkpoint) -> Blueprint {
    let mut blueprint = Blueprint::decode(N::BLUEPRINT).unwrap();
    blueprint.order_for(None);
    let steps = blueprint.training.as_mut().unwrap();
    (steps.moments, steps.checkpoint) = (optimizer.moments(), checkpoint);
    blueprint
}

fn setting(batch: u64, precision: Precision) -> Sizes {
    Sizes::new(batch, precision, Workspaces { product: 32 << 20, convolution: 256 << 20 })
}

fn arena(program: &Program, setting: &Sizes) -> u64 {
    let tables = tables(program);
    let budget =
        budget_at(&tables.as_tables().with_workspaces(setting.workspaces), setting.batch, setting.precision).unwrap();
    // Staging buffers are no harder to pack than what else there is.
    assert!(!tables.offloads || budget[Line::Arena] == budget.lower_bound, "{budget:?}");
    budget[Line::Arena]
}

/// The level that const evaluation would take for this room.
fn leaner(blueprint: &Blueprint, setting: &Sizes, room: impl FnOnce(&Budget) -> u64) -> Leaner {
    let Fitted { leaner, .. } = blueprint.fitted(setting, room).unwrap().unwrap();
    leaner.unwrap()
}

/// The time of what a level recomputes, in thousandths of the step.
fn time(found: &Leaner) -> u64 {
    found.more.unwrap()[1]
}

/// MiB, and hundredths of the step's time.
fn with_time(found: &Leaner) -> String {
    format!("{} (+{} %)", found.budget[Line::Arena] >> 20, time(found).div_ceil(10))
}

fn line<N: Network>(batch: u64) -> String {
    let adam = |checkpoint| blueprint::<N>(Optimizer::AdamW(AdamW::DEFAULT), checkpoint);
    let codes = |checkpoint| blueprint::<N>(Optimizer::AdamW8bit(AdamW8bit::DEFAULT), checkpoint);
    let (single, mixed) = (setting(batch, Precision::F32), setting(batch, MIXED));
    let of = |blueprint: &Blueprint, setting: &Sizes| {
        let programs = blueprint.trainings(setting).unwrap();
        assert_eq!(programs.len(), 1, "{}", N::NAME);
        arena(&programs[0], setting)
    };
    let [plain, keeping] = [Checkpoint::Norms, Checkpoint::None].map(|checkpoint| of(&adam(checkpoint), &single));
    let cheap = of(&adam(Checkpoint::Cheap), &single);
    let budget = Checkpoint::Budget(0.6);
    let share = leaner(&adam(budget), &single, |plain| budget_room(budget, plain).unwrap());
    let leanest = leaner(&adam(Checkpoint::Auto), &single, |_| 0);
    let all = leaner(&codes(Checkpoint::Auto), &mixed, |_| 0);
    let mut split = adam(Checkpoint::Norms);
    split.training.as_mut().unwrap().descent.micro_batches = PARTS;
    // A batch that has so many parts.
    let split = batch.is_multiple_of(PARTS).then(|| of(&split, &single));
    assert!(split.is_none_or(|split| split < plain), "{}: {split:?} of {plain}", N::NAME);
    let split = split.map_or("".to_string(), |split| (split >> 20).to_string());
    let (halves, coded) = (of(&adam(Checkpoint::Norms), &mixed), of(&codes(Checkpoint::Norms), &single));
    let mut hosted = adam(Checkpoint::Norms);
    hosted.training.as_mut().unwrap().descent.offload = Offload::OptimizerState;
    let offloaded = of(&hosted, &mixed);
    for (what, saved) in [
        ("share", share.budget[Line::Arena]),
        ("leanest", leanest.budget[Line::Arena]),
        ("codes", coded),
        ("offloaded", offloaded),
        ("all", all.budget[Line::Arena]),
    ] {
        assert!(saved < plain, "{}, {what}: {saved} of {plain}", N::NAME);
    }
    // Where rectifiers already lie over what they rectify, there is nothing cheap left.
    assert!(cheap <= plain && plain <= keeping, "{}: {cheap} of {plain} of {keeping}", N::NAME);
    // Time is spent where memory is saved, and more of it for more.
    assert!(0 < time(&share) && time(&share) <= time(&leanest), "{}", N::NAME);
    let numbers = [plain >> 20, keeping >> 20, cheap >> 20].map(|mib| format!("{mib} | ")).concat();
    format!(
        "| `{}`, {batch} | {numbers}{} | {} | {split} | {} | {} | {} | {} |\n",
        N::NAME,
        with_time(&share),
        with_time(&leanest),
        halves >> 20,
        coded >> 20,
        offloaded >> 20,
        with_time(&all)
    )
}

#[test]
fn what_each_way_leaves() {
    let mut text = String::from(
        "| network, batch | plain | `checkpoint: None` | `checkpoint: Cheap` | `checkpoint: Budget(0.6)` | leanest level | `micro_batches: 4` | \
         `precision: Mixed(Bf16)` | `AdamW8bit` | mixed, offloaded | mixed, 8 bits, leanest |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    text += &line::<Vgg16<1>>(32);
    text += &line::<ResNet50<1>>(64);
    text += &line::<UNet<1>>(8);
    text += &line::<Gpt2<1>>(8);
    text += &line::<Gpt2Xl<1>>(1);
    pages::check("../docs/guide/making-it-fit.md", "savers", &text);
}

/// MiB of the logits, and of the arena with all of them at once and in so many chunks; then with all recomputation that helps.
fn chunked<N: Network>(batch: u64, precision: Precision, features: u64) -> String {
    let setting = setting(batch, precision);
    let written = |chunks, checkpoint| {
        let mut blueprint = blueprint::<N>(Optimizer::AdamW(AdamW::DEFAULT), checkpoint);
        blueprint.training.as_mut().unwrap().loss[0].options.chunks = chunks;
        blueprint
    };
    let with = |chunks| written(Chunks::Count(chunks), Checkpoint::Norms);
    let mut whole = with(1).training(precision).unwrap().unwrap();
    whole.lay_out(precision);
    let losses = whole.operations.iter().find(|operation| matches!(operation.action, Action::Loss(_)));
    let logits = whole.tensor(losses.unwrap().read(Slot::Input(0)).unwrap());
    let tokens = batch * logits.shape.dims()[0];
    let logits = logits.stored(batch).unwrap() * logits.role.bytes(precision);
    let plain = [1, 4, 8, 32].map(|chunks| arena(&with(chunks).training_for(&setting).unwrap().unwrap(), &setting));
    let leanest = |chunks| leaner(&written(chunks, Checkpoint::Auto), &setting, |_| 0);
    let lean = [1, 8].map(|chunks| leanest(Chunks::Count(chunks)).budget[Line::Arena]);
    let least = leanest(Chunks::Auto);
    let Leaner { program, chunks, more, .. } = &least;
    assert!(least.budget[Line::Arena] <= lean[1], "{}", N::NAME);
    let time = chunks.map_or(0, |chunks| chunks.time) + more.map_or(0, |more| more[1]);
    // In the place of logits there is the gradient of the head's weight, which is no smaller where there are as few tokens as features.
    if tokens > features {
        assert!(plain.is_sorted_by(|more, fewer| more >= fewer), "{}: {plain:?}", N::NAME);
        assert!(plain[2] < plain[0] && lean[1] < lean[0], "{}: {plain:?}, {lean:?}", N::NAME);
    }
    let numbers: Vec<String> =
        [logits].iter().chain(&plain).chain(&lean).map(|bytes| (bytes >> 20).to_string()).collect();
    let format = if precision == Precision::F32 { "F32" } else { "Mixed(Bf16)" };
    let twice = if program.computes_logits_twice() { ", twice" } else { "" };
    let least = format!("{} (+{} %{twice})", least.budget[Line::Arena] >> 20, time.div_ceil(10));
    format!("| `{}`, {batch} | `{format}` | {} | {least} |\n", N::NAME, numbers.join(" | "))
}

#[test]
fn what_logits_in_chunks_leave() {
    let mut text = String::from(
        "| network, batch | precision | logits | plain | `chunks: 4` | `chunks: 8` | `chunks: 32` | leanest level | leanest, `chunks: 8` | leanest, `chunks: Auto` |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    text += &chunked::<Gpt2<1>>(16, Precision::F32, 768);
    text += &chunked::<Gpt2<1>>(16, MIXED, 768);
    text += &chunked::<Gpt2Xl<1>>(1, MIXED, 1600);
    text += &chunked::<Llama1B<1>>(1, MIXED, 2048);
    text += &chunked::<Llama1B<1>>(8, MIXED, 2048);
    pages::check("../docs/guide/making-it-fit.md", "chunks", &text);
}

/// MiB of the arena without and with activations in host memory, MiB there, and the milliseconds that they are on the bus; then the same with
/// optimizer state as well.
fn parked<N: Network>(batch: u64) -> String {
    let budgets = [
        (Precision::F32, Offload::None),
        (Precision::F32, Offload::Activations),
        (MIXED, Offload::None),
        (MIXED, Offload::Activations),
        (MIXED, Offload::All),
    ];
    let budgets = budgets.map(|(precision, offload)| {
        let mut blueprint = blueprint::<N>(Optimizer::AdamW(AdamW::DEFAULT), Checkpoint::Norms);
        blueprint.training.as_mut().unwrap().descent.offload = offload;
        let setting = setting(batch, precision);
        let program = blueprint.training_for(&setting).unwrap().unwrap();
        budget_at(&tables(&program).as_tables().with_workspaces(setting.workspaces), batch, precision).unwrap()
    });
    let line = |[here, there]: [&Budget; 2]| {
        // What is not on the card is on the host, and not more than that.
        let saved = here[Line::Arena] - there[Line::Arena];
        assert!(0 < saved && there.lower_bound < here.lower_bound, "{}: {saved} of {}", N::NAME, there.host);
        let mib = [there[Line::Arena], there.host].map(|bytes| bytes >> 20);
        format!("{} | {} | {}", mib[0], mib[1], there.bus_ms())
    };
    let [single, hosted, mixed, hosted16, both] = &budgets;
    let [plain, plain16] = [single, mixed].map(|budget| budget[Line::Arena] >> 20);
    let (one, other, all) = (line([single, hosted]), line([mixed, hosted16]), line([hosted16, both]));
    format!("| `{}`, {batch} | {plain} | {one} | {plain16} | {other} | {all} |\n", N::NAME)
}

#[test]
fn what_activations_in_host_memory_leave() {
    let mut text = String::from(
        "| network, batch | F32 | offloaded | host | ms | `Mixed(Bf16)` | offloaded | host | ms | `All` | host | ms |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    text += &parked::<ResNet50<1>>(64);
    text += &parked::<Gpt2<1>>(8);
    pages::check("../docs/guide/making-it-fit.md", "parked", &text);
}

/// GPT-2 small on a card of 12 GiB, with more samples than fit with whole logits: in chunks it need not recompute, or less.
#[test]
fn chunks_take_the_place_of_recomputation() {
    let cards = [RTX_3060];
    let target_cards = TargetCards::at(&cards);
    let room = target_cards.room();
    let with = |checkpoint, chunks| {
        let mut blueprint = blueprint::<Gpt2<1>>(Optimizer::AdamW(AdamW::DEFAULT), checkpoint);
        blueprint.training.as_mut().unwrap().loss[0].options.chunks = chunks;
        blueprint
    };
    let whole = with(Checkpoint::Norms, Chunks::WHOLE);
    let at = |batch| Sizes::of(&target_cards, batch, Precision::Bf16, Train::DEFAULT.conv_workspace);
    let planned = |batch| (at(batch), whole.training_for(&at(batch)).unwrap().unwrap());
    let refused = (32..).step_by(4).map(planned).find(|(setting, plain)| arena(plain, setting) > room);
    let (setting, plain) = refused.unwrap();
    let fitted = |checkpoint| leaner(&with(checkpoint, Chunks::Auto), &setting, |_| room);
    for checkpoint in [Checkpoint::Norms, Checkpoint::Auto] {
        let Leaner { chunks, more, fits, .. } = fitted(checkpoint);
        println!("{checkpoint:?}: {chunks:?}, {more:?}");
        assert!(fits && chunks.is_some(), "{checkpoint:?}");
    }
    let alone = leaner(&with(Checkpoint::Auto, Chunks::WHOLE), &setting, |_| room);
    println!("recomputation alone: {:?}, fits: {}", alone.more, alone.fits);
    let joint = fitted(Checkpoint::Auto);
    let time_of = |found: &Leaner| found.chunks.map_or(0, |chunks| chunks.time) + found.more.map_or(0, |more| more[1]);
    assert!(!alone.fits || time_of(&joint) < time_of(&alone));
    // A refusal of the step as it is names them first.
    let told = whole.remedies(&plain, &setting, room).planned[0].unwrap();
    println!("{}", told.text().as_str());
    assert!(told.chunks.is_some() && told.more.is_none(), "{told:?}");
}
