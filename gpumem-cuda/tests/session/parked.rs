//! Activations in the host's memory: copied out of the arena beside the forward pass and back into it beside the backward pass, alone and
//! together with optimizer state.

use super::offload::trained;
use super::*;
use crate::host::card::on_a_simulated_card;
use gpumem_core::graph::NodeId;
use gpumem_core::lower::{Blueprint, Sizes, Steps};
use gpumem_core::memory::tables::Workspaces;
use gpumem_core::program::{Action, ChannelOrder, Leg};
use gpumem_core::train::{Checkpoint, Clip, ConvNorm, Descent, Offload};

const ADAM: Optimizer = Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT });

/// Maps of one size, so that the first ones leave while others are made, gates that read two of them, and sums.
pub(super) fn deep(blocks: usize) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 5])).unwrap();
    let mut value = chain(&mut graph, input, "Conv2d(8, 3, padding = 1)");
    for index in 0..blocks {
        let wide = chain(&mut graph, value, "Conv2d(8, 3, padding = 1) | BatchNorm2d | Silu");
        value = match index % 3 {
            0 => join(&mut graph, &[wide, value], "Add"),
            1 => {
                let gate = chain(&mut graph, value, "Conv2d(8, 1) | Sigmoid");
                join(&mut graph, &[wide, gate], "Mul")
            }
            _ => chain(&mut graph, wide, "Dropout(0.1)"),
        };
    }
    let output = chain(&mut graph, value, "Flatten | Linear(5)");
    (graph, output)
}

/// A step of it with something in the host's memory, and how it is trained.
struct Way {
    offload: Offload,
    precision: Precision,
    update: Update,
    descent: Descent,
    blocks: usize,
}

impl Way {
    fn of(offload: Offload, precision: Precision) -> Way {
        Way { offload, precision, update: Update::Fused, descent: Descent::PLAIN, blocks: 12 }
    }

    fn blueprint(&self, checkpoint: Checkpoint) -> Blueprint {
        let (graph, output) = deep(self.blocks);
        let (loss, descent) = (vec![Term::CROSS_ENTROPY], Descent { offload: self.offload, ..self.descent });
        let training = Steps {
            loss,
            moments: 2,
            update: self.update,
            checkpoint,
            descent,
            conv_norm: ConvNorm::Fused,
            ordered_at: None,
        };
        Blueprint { graph, outputs: vec![output], training: Some(training), cached: None, parts: Default::default() }
    }

    fn job(&self) -> Job {
        let blueprint = self.blueprint(Checkpoint::None);
        let step = blueprint.training(self.precision).unwrap().unwrap();
        self.job_with(&step, &blueprint)
    }

    fn job_with(&self, step: &Program, blueprint: &Blueprint) -> Job {
        job_of_programs([step, &blueprint.inference().unwrap()], ADAM, self.precision, None)
    }
}

/// Activations of a job that leave.
pub(super) fn parked(job: &Job) -> usize {
    job.train.as_ref().unwrap().program.of_class(Class::Host).count()
}

/// To the bit that of activations on the card, in every order of copies and kernels, and nothing is allocated or captured after the start.
#[test]
fn steps_are_those_of_activations_on_the_card() {
    if !on_a_simulated_card("parked::steps_are_those_of_activations_on_the_card", &[]) {
        return;
    }
    for precision in [Precision::F32, Precision::Mixed(Half::F16)] {
        let here = Way::of(Offload::None, precision).job();
        let expected = trained(&here);
        for offload in [Offload::Activations, Offload::All] {
            let there = Way::of(offload, precision).job();
            assert!(parked(&there) > 1, "{}", parked(&there));
            if offload == Offload::Activations {
                assert!(there.arena < here.arena);
            }
            assert_eq!(trained(&there), expected, "{precision:?} {offload:?}");
        }
    }
    for offload in [Offload::Activations, Offload::All] {
        let there = Way::of(offload, Precision::F32).job();
        offload::check_replays(&there);
    }
}

/// Parts of a batch use the same places in the host's memory one after the other.
#[test]
fn parts_of_a_batch_leave_and_return() {
    if !on_a_simulated_card("parked::parts_of_a_batch_leave_and_return", &[]) {
        return;
    }
    for (precision, clip) in [(Precision::F32, Some(Clip::GlobalNorm(0.5))), (Precision::Mixed(Half::Bf16), None)] {
        let descent = Descent { clip, micro_batches: 3, ..Descent::PLAIN };
        let of = |offload| Way { update: Update::Separate, descent, ..Way::of(offload, precision) }.job();
        let expected = trained(&of(Offload::None));
        for offload in [Offload::Activations, Offload::All] {
            let there = of(offload);
            assert!(parked(&there) > 1, "{}", parked(&there));
            let before = counts();
            assert_eq!(trained(&there), expected, "{precision:?} {offload:?}");
            let after = counts();
            assert_eq!([after[2] - before[2], after[3] - before[3]], [5, 15], "graphs captured and replayed");
        }
    }
}

/// The step in the order that was found to need least, and the leanest one in which something is computed again.
#[test]
fn other_orders_of_the_step() {
    if !on_a_simulated_card("parked::other_orders_of_the_step", &[]) {
        return;
    }
    let setting = Sizes::new(BATCH, Precision::F32, Workspaces::UNLIMITED);
    for checkpoint in [Checkpoint::Norms, Checkpoint::None, Checkpoint::Cheap, Checkpoint::Auto] {
        let [here, there] = [Offload::None, Offload::Activations].map(|offload| {
            // With fewer, nothing that is computed again is far enough away.
            let way = Way { blocks: 18, ..Way::of(offload, Precision::F32) };
            let blueprint = way.blueprint(checkpoint);
            let steps = blueprint.trainings(&setting).unwrap();
            assert!(checkpoint != Checkpoint::Auto || steps.len() > 1);
            way.job_with(steps.last().unwrap(), &blueprint)
        });
        assert!(parked(&there) > 0, "{checkpoint:?}");
        assert_eq!(trained(&there), trained(&here), "{checkpoint:?}");
    }
}

/// Maps lie in the host's memory as they do in the arena, in either order of their channels.
#[test]
fn maps_lie_there_as_they_do_here() {
    let orders = |precision| -> Vec<ChannelOrder> {
        let Job { train, mut infer, .. } = Way::of(Offload::Activations, precision).job();
        let mut train = train.unwrap();
        order(&mut [&mut train, &mut infer], precision, CAPABILITY);
        let legs = train.program.operations.iter().filter(|it| matches!(it.action, Action::Park(_)));
        for leg in legs {
            let layouts: Vec<_> = leg.tensors().map(|id| train.program.tensor(id).layout).collect();
            assert_eq!(layouts[0], layouts[1]);
        }
        train.program.of_class(Class::Host).map(|id| train.program.tensor(id).layout.order).collect()
    };
    assert!(orders(Precision::F32).iter().all(|order| *order == ChannelOrder::ChannelsFirst));
    assert!(orders(Precision::Bf16).contains(&ChannelOrder::ChannelsLast));
}

/// Without graphs the same calls are made one by one, with a wait behind each or without.
#[test]
fn legs_are_launched_call_by_call() {
    if !on_a_simulated_card("parked::legs_are_launched_call_by_call", &[]) {
        return;
    }
    let job = Way::of(Offload::All, Precision::Mixed(Half::Bf16)).job();
    let replayed = trained(&job);
    let before = counts()[3];
    for (variable, value) in
        [("GPUMEM_SIMULATED_REFUSED", "cuGraphInstantiateWithFlags"), ("GPUMEM_LAUNCH_BLOCKING", "1")]
    {
        // SAFETY: this process runs one test alone, in one thread.
        unsafe { std::env::set_var(variable, value) };
        assert_eq!(trained(&job), replayed);
        assert_eq!(counts()[3], before, "no graph was replayed");
    }
}

/// Each copy is counted, out of the arena and into it.
#[test]
fn copies_have_a_place_in_the_profile() {
    if !on_a_simulated_card("parked::copies_have_a_place_in_the_profile", &[]) {
        return;
    }
    for offload in [Offload::Activations, Offload::All] {
        let job = Way::of(offload, Precision::F32).job();
        let mut card = load(&job);
        begin(&job, &mut card);
        feed(&job, &mut card, 0);
        let profile = card.profile(1).unwrap();
        let train = profile.programs.iter().find(|program| program.name == "train").unwrap();
        let copies = train.launches.iter().filter(|launch| launch.counted.kind() == "copy");
        let [reads, writes] = copies.fold([0, 0], |[reads, writes], launch| {
            let sum = |all: &[u64]| all.iter().sum::<u64>();
            [reads + sum(&launch.counted.reads), writes + sum(&launch.counted.writes)]
        });
        let placed = job.train.as_ref().unwrap();
        let moved = |class| placed.program.of_class(class).map(|id| placed.bytes[id as usize]).sum::<u64>();
        let states = if offload == Offload::All { moved(Class::Moment) } else { 0 };
        assert_eq!([reads, writes], [moved(Class::Host) + states; 2], "{offload:?}");
    }
}

/// A host that locks no pages says what to do.
#[test]
fn a_host_without_locked_memory() {
    if !on_a_simulated_card("parked::a_host_without_locked_memory", &[]) {
        return;
    }
    for offload in [Offload::Activations, Offload::All] {
        let job = Way::of(offload, Precision::F32).job();
        let card = Cuda::new(0).unwrap().with_cudnn(false);
        register_kernels(&job);
        // SAFETY: this process runs one test alone, in one thread.
        unsafe { std::env::set_var("GPUMEM_SIMULATED_REFUSED", "cuMemHostAlloc") };
        let error = card.load(job).unwrap_err().to_string();
        // SAFETY: as above.
        unsafe { std::env::remove_var("GPUMEM_SIMULATED_REFUSED") };
        let expected = format!("`offload: {}` needs 0.00 GiB of the host's memory page-locked", offload.name());
        assert!(error.contains(&expected), "{error}");
    }
}

/// A program in which a leg is missing, or comes before the one that it follows, is an error, and so is one whose tensor in the host's memory
/// is not there or not like its own.
#[test]
fn stray_legs_are_errors() {
    if !on_a_simulated_card("parked::stray_legs_are_errors", &[]) {
        return;
    }
    let whole = Way::of(Offload::Activations, Precision::F32).job();
    register_kernels(&whole);
    let card = Cuda::new(0).unwrap().with_cudnn(false);
    let load = |change: &dyn Fn(&mut Placed)| {
        let mut job = whole.clone();
        change(job.train.as_mut().unwrap());
        card.load(job).map(|_| ())
    };
    assert_eq!(load(&|_| {}), Ok(()));
    let stray = Err(Error::Damaged("an activation leaves without coming back, or comes back without having left"));
    let find = |placed: &Placed, leg| placed.program.operations.iter().position(|it| it.action == Action::Park(leg));
    for leg in [Leg::Leave, Leg::Left, Leg::Return, Leg::Returned] {
        let without = |placed: &mut Placed| _ = placed.program.operations.remove(find(placed, leg).unwrap());
        assert_eq!(load(&without), stray, "{leg:?}");
    }
    let swapped = |placed: &mut Placed| {
        let at = [Leg::Leave, Leg::Left].map(|leg| find(placed, leg).unwrap());
        placed.program.operations.swap(at[0], at[1]);
    };
    assert_eq!(load(&swapped), stray);
    let host = whole.train.as_ref().unwrap().program.of_class(Class::Host).next().unwrap() as usize;
    let damaged = Err(Error::Damaged("an activation has no place in host memory that is like its own"));
    assert_eq!(load(&|placed| placed.offsets[host] = 0), damaged);
    assert_eq!(load(&|placed| placed.bytes[host] += 4), damaged);
}
