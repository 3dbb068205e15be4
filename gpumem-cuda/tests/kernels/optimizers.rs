//! Updates: every optimizer, one parameter and all in a launch, master copies, and the loss scale.

use crate::host::harness::compile;
use crate::host::harness::graphs::{chain, numbers, plan};
use crate::host::{CAPABILITY, Simulated, compare, compare_in, corrections, spread, steps_of};
use gpumem_core::error::Error;
use gpumem_core::graph::{Graph, NodeId};
use gpumem_core::lower::{Options, Term, Training, lower};
use gpumem_core::memory::budget::Line;
use gpumem_core::operation::Operations;
use gpumem_core::program::{Action, Class, StateWord};
use gpumem_core::train::optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Corrections, Extent, Group, Lion, Muon, NAdam, Optimizer, RAdam,
    RmsProp, Sgd, has_extent,
};
use gpumem_core::{Half, Precision, Update};
use gpumem_cuda::Call;
use gpumem_cuda::operations::LaunchContext;
use std::collections::BTreeSet;

fn optimizers() -> Vec<Optimizer> {
    let rms = RmsProp { weight_decay: 0.1, eps: 1e-3, ..RmsProp::DEFAULT };
    let nadam = NAdam { lr: 0.01, weight_decay: 0.1, momentum_decay: 0.3, ..NAdam::DEFAULT };
    vec![
        Optimizer::Sgd(Sgd { lr: 0.05, weight_decay: 0.1, ..Sgd::DEFAULT }),
        Optimizer::Sgd(Sgd { lr: 0.05, momentum: 0.9, weight_decay: 0.01, nesterov: true, ..Sgd::DEFAULT }),
        Optimizer::Adam(Adam { lr: 0.01, weight_decay: 0.1, ..Adam::DEFAULT }),
        Optimizer::Adam(Adam { lr: 0.01, betas: (0.9, 0.5), weight_decay: 0.1, amsgrad: true, ..Adam::DEFAULT }),
        Optimizer::AdamW(AdamW { lr: 0.01, weight_decay: 0.1, ..AdamW::DEFAULT }),
        Optimizer::AdamW(AdamW { lr: 0.01, betas: (0.9, 0.5), amsgrad: true, ..AdamW::DEFAULT }),
        Optimizer::Lion(Lion { lr: 0.01, weight_decay: 0.1, ..Lion::DEFAULT }),
        Optimizer::RmsProp(rms),
        Optimizer::RmsProp(RmsProp { centered: true, ..rms }),
        Optimizer::RmsProp(RmsProp { centered: true, momentum: 0.9, ..rms }),
        Optimizer::Adagrad(Adagrad { lr_decay: 0.01, weight_decay: 0.1, ..Adagrad::DEFAULT }),
        Optimizer::Adadelta(Adadelta { weight_decay: 0.1, ..Adadelta::DEFAULT }),
        Optimizer::NAdam(nadam),
        Optimizer::Adamax(Adamax { lr: 0.01, weight_decay: 0.1, ..Adamax::DEFAULT }),
        // Rectified from the sixth step on.
        Optimizer::RAdam(RAdam { lr: 0.01, weight_decay: 0.1, decoupled_weight_decay: true, ..RAdam::DEFAULT }),
        Optimizer::Adafactor(Adafactor { weight_decay: 0.1, ..Adafactor::DEFAULT }),
        Optimizer::Muon(Muon { lr: 0.02, adamw_lr_factor: 0.5, ..Muon::DEFAULT }),
    ]
}

pub fn training(loss: &[Term], optimizer: Optimizer, update: Update) -> Training<'_> {
    Training {
        loss,
        moments: optimizer.moments(),
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    }
}

/// The same where a step with a gradient that is not finite updates nothing.
pub fn checked(loss: &[Term], optimizer: Optimizer, update: Update) -> Training<'_> {
    Training { skips_overflow: true, ..training(loss, optimizer, update) }
}

pub fn network(dims: &[u64], layers: &str) -> (Graph, NodeId) {
    let mut graph = Graph::default();
    let input = graph.input(numbers(dims)).unwrap();
    let output = chain(&mut graph, input, layers);
    (graph, output)
}

/// Each with one way to update; the sweep has both.
#[test]
fn every_optimizer() {
    let names: BTreeSet<&str> = optimizers().iter().map(|optimizer| optimizer.row().name).collect();
    // Those with codes have tests of their own.
    let others = Optimizer::DEFAULTS.iter().filter(|optimizer| !has_extent(optimizer.moments(), Extent::Codes));
    assert_eq!(names, others.map(|optimizer| optimizer.row().name).collect());
    let updates = [Update::Fused, Update::Separate].into_iter().cycle();
    trained(optimizers().into_iter().zip(updates));
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_optimizer_with_every_way_to_update() {
    let both = |optimizer| [Update::Fused, Update::Separate].map(|update| (optimizer, update));
    trained(optimizers().into_iter().flat_map(both));
}

fn trained(cases: impl Iterator<Item = (Optimizer, Update)>) {
    // 2480 weights: three blocks, the last one not full; 5 and 31 are no multiples of four.
    let (graph, output) =
        network(&[3, 6, 6], "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)");
    for (optimizer, update) in cases {
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        let what = format!("{optimizer:?}, {update:?}");
        let steps = if matches!(optimizer, Optimizer::RAdam(_)) { 8 } else { 3 };
        // Adam divides by the gradient's own size: rounding differences of small gradients show.
        compare(&what, &graph, output, training, 3, optimizer, steps, 31, 1e-3);
    }
}

/// All groups in one launch, with rules that have none, one, two and three states.
#[test]
fn groups_are_those_of_the_cpu() {
    let (graph, output) =
        network(&[3, 6, 6], "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)");
    let groups = &[
        Group { paths: "*.bias, *norm*", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT },
    ];
    let rms = RmsProp { weight_decay: 0.5, eps: 1e-3, centered: true, momentum: 0.9, groups, ..RmsProp::DEFAULT };
    for optimizer in [
        Optimizer::Sgd(Sgd { lr: 0.05, weight_decay: 0.5, groups, ..Sgd::DEFAULT }),
        Optimizer::Lion(Lion { lr: 0.01, weight_decay: 0.5, groups, ..Lion::DEFAULT }),
        Optimizer::AdamW(AdamW { lr: 0.01, weight_decay: 0.5, groups, ..AdamW::DEFAULT }),
        Optimizer::RmsProp(rms),
    ] {
        let training = training(&[Term::CROSS_ENTROPY], optimizer, Update::Separate);
        let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
        let parameters = placed.program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter);
        let own: Vec<(f64, f64)> = parameters.map(|tensor| optimizer.own(&tensor.name)).collect();
        assert_eq!(own, [(1.0, 0.5), (1.0, 0.0), (1.0, 0.0), (0.25, 0.5), (0.25, 0.0)]);
        let steps = steps_of(&placed, 3, Precision::F32, optimizer);
        let updates = steps.iter().filter(|step| placed.program.operations[step.first].action == Action::Update);
        assert_eq!(updates.count(), 1);
        compare(&format!("{optimizer:?}"), &graph, output, training, 3, optimizer, 3, 31, 1e-3);
    }
}

/// Rates and weight decay beside master copies.
#[test]
fn groups_of_sixteen_bits() {
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    let groups = &[
        Group { paths: "*.bias", weight_decay: Some(0.0), ..Group::DEFAULT },
        Group { paths: "linear*", lr_factor: Some(0.25), ..Group::DEFAULT },
    ];
    let adam = AdamW { lr: 0.5, eps: 1.0, weight_decay: 0.4, groups, ..AdamW::DEFAULT };
    let optimizer = Optimizer::AdamW(adam);
    for precision in [Precision::Bf16, Precision::Mixed(Half::Bf16)] {
        let training = training(&[Term::DOT], optimizer, Update::Separate);
        let case = ("groups", &graph, output, training, 2, optimizer);
        compare_in((precision, CAPABILITY), 0..1, case, 1, 5, 1e-2);
    }
}

#[test]
fn updates_are_launched_together() {
    let (graph, output) =
        network(&[3, 6, 6], "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)");
    // The bias waits for the normalisation; to wait for anything would raise the peak for the weight.
    // The last launch is the end of the step, too.
    for (update, expected) in [(Update::Separate, vec![(6, 1)]), (Update::Fused, vec![(1, 1), (3, 1), (2, 1)])] {
        let optimizer = optimizers()[2];
        let training = training(&[Term::CROSS_ENTROPY], optimizer, update);
        let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
        let steps = steps_of(&placed, 3, Precision::F32, optimizer);
        let updates = steps.iter().filter(|step| placed.program.operations[step.first].action == Action::Update);
        let found: Vec<(usize, usize)> = updates.map(|step| (step.count, step.calls.len())).collect();
        assert_eq!(found, expected);
        // In one launch the distances are of tensors of this plan.
        let Call::Kernel(last) = &steps[steps.len() - 1].calls[0] else { panic!("an update is a kernel") };
        assert_eq!(last.kernel.entry, "update");
        assert_eq!(last.arguments.len(), 6);
        let first_blocks: &[u32] = if update == Update::Separate { &[0, 1, 2, 3, 6] } else { &[0] };
        // How many, and that this is the end of the step.
        assert_eq!(last.numbers[..2], [first_blocks.len() as u32, 1]);
        assert_eq!(&last.numbers[2..2 + first_blocks.len()], first_blocks);
    }
}

#[test]
fn all_checks_are_one_launch() {
    let (graph, output) =
        network(&[3, 6, 6], "Conv2d(5, 3, bias = false) | BatchNorm2d | Sigmoid | Flatten | Linear(31)");
    for update in [Update::Separate, Update::Fused] {
        let optimizer = optimizers()[2];
        let training = checked(&[Term::CROSS_ENTROPY], optimizer, update);
        let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 3);
        let steps = steps_of(&placed, 3, Precision::Mixed(Half::F16), optimizer);
        let [checks, updates] = &steps[steps.len() - 2..] else { panic!("a step of fewer operations") };
        assert_eq!([checks.count, checks.calls.len(), updates.count, updates.calls.len()], [5, 1, 6, 1]);
        let Call::Kernel(launch) = &checks.calls[0] else { panic!("a check is a kernel") };
        assert_eq!((launch.kernel.entry, launch.arguments.len()), ("check", 2));
        // The gradients of the normalisation's parameters are f32 beside those of 16 bits.
        let halves = &launch.numbers[launch.numbers.len() - 12..];
        let whole: Vec<bool> = (0..5).map(|tensor| halves[tensor / 2] >> (16 * (tensor % 2)) & 1024 != 0).collect();
        assert_eq!(whole, [false, true, true, false, false]);
    }
}

#[test]
fn checked_steps_are_those_of_the_cpu() {
    let (graph, output) = network(&[3, 6, 6], "Conv2d(5, 3, bias = false) | BatchNorm2d | Flatten | Linear(31)");
    for update in [Update::Fused, Update::Separate] {
        let optimizer = optimizers()[1];
        let training = checked(&[Term::CROSS_ENTROPY], optimizer, update);
        compare("checked", &graph, output, training, 3, optimizer, 3, 31, 1e-3);
    }
}

#[test]
fn sixteen_bits_and_master_copies() {
    moments([(Precision::Bf16, Update::Fused), (Precision::Mixed(Half::F16), Update::Separate)]);
}

#[test]
#[ignore = "a sweep: run by .ci/run"]
fn every_precision_with_every_way_to_update() {
    let formats = [Precision::Bf16, Precision::F16, Precision::Mixed(Half::Bf16), Precision::Mixed(Half::F16)];
    let updates = |precision| [Update::Fused, Update::Separate].map(|update| (precision, update));
    moments(formats.into_iter().flat_map(updates));
}

fn moments(cases: impl IntoIterator<Item = (Precision, Update)> + Clone) {
    let (graph, output) = network(&[3, 36], "LayerNorm | Linear(31)");
    // Large steps, so that they show beside the digits of 16 bits, and without Adam's jumps where a gradient is almost 0.
    let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.01, nesterov: true, ..Sgd::DEFAULT };
    let adam = AdamW { lr: 0.5, eps: 1.0, weight_decay: 0.1, ..AdamW::DEFAULT };
    let rms = RmsProp {
        lr: 0.1,
        alpha: 0.5,
        eps: 1.0,
        weight_decay: 0.01,
        momentum: 0.9,
        centered: true,
        ..RmsProp::DEFAULT
    };
    let adagrad = Adagrad { lr: 0.5, eps: 1.0, weight_decay: 0.01, ..Adagrad::DEFAULT };
    let adadelta = Adadelta { lr: 0.5, eps: 1.0, weight_decay: 0.01, ..Adadelta::DEFAULT };
    let nadam = NAdam { lr: 0.1, eps: 1.0, weight_decay: 0.01, ..NAdam::DEFAULT };
    let adamax = Adamax { lr: 0.1, eps: 1.0, weight_decay: 0.01, ..Adamax::DEFAULT };
    let radam = RAdam { lr: 0.1, eps: 1.0, weight_decay: 0.01, ..RAdam::DEFAULT };
    for optimizer in [
        Optimizer::Sgd(sgd),
        Optimizer::AdamW(adam),
        Optimizer::RmsProp(rms),
        Optimizer::Adagrad(adagrad),
        Optimizer::Adadelta(adadelta),
        Optimizer::NAdam(nadam),
        Optimizer::Adamax(adamax),
        Optimizer::RAdam(radam),
    ] {
        for (precision, update) in cases.clone() {
            let what = format!("{optimizer:?}, {precision:?}, {update:?}");
            let training = match precision.scales_loss() {
                true => checked(&[Term::DOT], optimizer, update),
                false => training(&[Term::DOT], optimizer, update),
            };
            let case = (&*what, &graph, output, training, 2, optimizer);
            compare_in((precision, CAPABILITY), 0..1, case, 1, 5, 1e-2);
        }
    }
}

const BATCH: u64 = 2;

/// A product with 4 outputs, trained in one way or another, with moments of 0.25.
struct Small {
    simulated: Simulated,
    state: usize,
}

impl Small {
    fn new(precision: Precision, update: Update, scale: f32) -> Small {
        let (graph, output) = network(&[5], "Linear(4)");
        let optimizer = optimizers()[1];
        let training = checked(&[Term::DOT], optimizer, update);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let compiled = plan(&program, BATCH, precision);
        let placed = gpumem_core::memory::place::place(&compiled).unwrap();
        let format = (precision, CAPABILITY);
        let mut simulated = Simulated::new(placed, BATCH, compiled.budget[Line::Arena], optimizer, format, 0);
        let mut state = 0;
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(BATCH).unwrap() as usize;
            match tensor.class {
                Class::Parameter | Class::Input => simulated.write(id, &spread(count, id + 1)),
                Class::Moment => simulated.write(id, &vec![0.25f32.to_bits(); count]),
                // The first output's gradient is as large as the loss scale.
                Class::Target => {
                    let size = |index| if index % 4 == 0 { 1.0f32 } else { 0.03 };
                    simulated.write(id, &(0..count).map(|index| size(index).to_bits()).collect::<Vec<u32>>());
                }
                Class::State => {
                    let mut words = vec![0; count];
                    // Not the first step, in which there is no velocity yet.
                    words[StateWord::Step as usize] = 7;
                    words[StateWord::LearningRate as usize] = 0.05f32.to_bits();
                    words[StateWord::LossScale as usize] = scale.to_bits();
                    state = id;
                    simulated.write(id, &words);
                }
                _ => {}
            }
        }
        Small { simulated, state }
    }

    fn word(&mut self, word: StateWord) -> u32 {
        self.simulated.read(self.state)[word as usize]
    }

    fn scale(&mut self) -> f32 {
        f32::from_bits(self.word(StateWord::LossScale))
    }

    /// Parameters and moments.
    fn values(&mut self) -> Vec<Vec<u32>> {
        let tensors = self.simulated.placed.program.tensors.clone();
        let kept = |class| matches!(class, Class::Parameter | Class::Moment);
        let ids = (0..tensors.len()).filter(|&id| kept(tensors[id].class));
        ids.map(|id| self.simulated.read(id)).collect()
    }
}

#[test]
fn a_step_with_a_too_large_gradient_updates_nothing() {
    for (precision, large) in [
        (Precision::F16, 65536.0),
        (Precision::Mixed(Half::F16), 65536.0),
        (Precision::F32, f32::INFINITY),
        (Precision::Mixed(Half::Bf16), f32::NAN),
    ] {
        for update in [Update::Fused, Update::Separate] {
            let label = format!("{precision:?}, {update:?}");
            let mut small = Small::new(precision, update, large);
            let before = small.values();
            small.simulated.step();
            assert_eq!(small.values(), before, "{label}");
            let halved = if precision.scales_loss() { large / 2.0 } else { large };
            assert_eq!(small.scale().to_bits(), halved.to_bits(), "{label}");
            assert_eq!(small.word(StateWord::Overflow), 0, "{label}");
            assert_eq!(small.word(StateWord::GoodSteps), 0, "{label}");
            assert_eq!(small.word(StateWord::Step), 7, "{label}: a step that was skipped does not count");
            let mut modest = Small::new(precision, update, 128.0);
            modest.simulated.step();
            assert!(
                modest.values().iter().flatten().zip(before.iter().flatten()).all(|(new, old)| new != old),
                "{label}"
            );
            let good = u32::from(precision.scales_loss());
            assert_eq!((modest.scale(), modest.word(StateWord::GoodSteps)), (128.0, good), "{label}");
            assert_eq!(modest.word(StateWord::Step), 8, "{label}");
        }
    }
}

/// One output of 31 whose target is infinite, in a gradient of three blocks.
#[test]
fn a_gradient_that_is_not_finite_is_found_wherever_it_is() {
    for infinite in [None, Some(0), Some(13), Some(30)] {
        let (graph, output) = network(&[80], "Linear(31, bias = false)");
        let optimizer = optimizers()[0];
        let training = checked(&[Term::DOT], optimizer, Update::Separate);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let compiled = plan(&program, 1, Precision::F32);
        let placed = gpumem_core::memory::place::place(&compiled).unwrap();
        let format = (Precision::F32, CAPABILITY);
        let mut simulated = Simulated::new(placed, 1, compiled.budget[Line::Arena], optimizer, format, 0);
        let mut words = [0; StateWord::COUNT];
        words[StateWord::LossScale as usize] = 1f32.to_bits();
        let mut state = 0;
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(1).unwrap() as usize;
            let target = |index| if Some(index) == infinite { f32::INFINITY } else { 0.5 };
            match tensor.class {
                Class::Parameter | Class::Input => simulated.write(id, &spread(count, id + 1)),
                Class::Target => simulated.write(id, &(0..count).map(|at| target(at).to_bits()).collect::<Vec<_>>()),
                Class::State => {
                    state = id;
                    simulated.write(id, &words);
                }
                _ => {}
            }
        }
        simulated.step();
        let steps = simulated.read(state)[StateWord::Step as usize];
        assert_eq!(steps, u32::from(infinite.is_none()), "{infinite:?}");
    }
}

#[test]
fn the_loss_scale_grows_after_good_steps_and_stays_in_its_bounds() {
    let faster = |_: &str, text: &str| text.replace("GROWTH = 2000", "GROWTH = 3");
    let mut small = Small::new(Precision::F16, Update::Separate, 4.0);
    small.simulated.change(faster);
    let scales: Vec<f32> = (0..7)
        .map(|_| {
            small.simulated.step();
            small.scale()
        })
        .collect();
    assert_eq!(scales, [4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0]);
    assert_eq!(small.word(StateWord::GoodSteps), 1);
    // Without changes, 2000 steps are needed.
    let mut small = Small::new(Precision::F16, Update::Separate, 4.0);
    (0..3).for_each(|_| small.simulated.step());
    assert_eq!((small.scale(), small.word(StateWord::GoodSteps)), (4.0, 3));
    let mut words = small.simulated.read(small.state);
    words[StateWord::GoodSteps as usize] = 1998;
    small.simulated.write(small.state, &words);
    small.simulated.step();
    assert_eq!((small.scale(), small.word(StateWord::GoodSteps)), (4.0, 1999));
    small.simulated.step();
    assert_eq!((small.scale(), small.word(StateWord::GoodSteps)), (8.0, 0));
}

/// The loss scale after `advance`, from this state.
fn advanced(precision: Precision, scale: f32, overflow: u32, good: u32) -> (f32, u32, u32) {
    let mut small = Small::new(precision, Update::Separate, scale);
    let mut words = small.simulated.read(small.state);
    words[StateWord::LossScale as usize] = scale.to_bits();
    (words[StateWord::Overflow as usize], words[StateWord::GoodSteps as usize]) = (overflow, good);
    small.simulated.write(small.state, &words);
    small.simulated.step();
    (small.scale(), small.word(StateWord::Overflow), small.word(StateWord::GoodSteps))
}

#[test]
fn the_loss_scale_has_bounds() {
    // Too large for every gradient, from then on.
    assert_eq!(advanced(Precision::F16, 16777216.0, 0, 1999), (8388608.0, 0, 0));
    assert_eq!(advanced(Precision::F16, 1.0, 1, 5), (1.0, 0, 0));
    assert_eq!(advanced(Precision::F16, 3.0, 1, 5), (1.5, 0, 0));
    assert_eq!(advanced(Precision::Mixed(Half::F16), 1.0, 0, 1999), (2.0, 0, 0));
    // Only binary16 needs one.
    for precision in [Precision::Bf16, Precision::Mixed(Half::Bf16), Precision::F32] {
        assert_eq!(advanced(precision, 1.0, 0, 1999), (1.0, 0, 1999), "{precision:?}");
    }
}

/// What a rule needs of the step is that of the step in the state: of the first, of the next, after steps that were set, and again after a
/// step that was skipped.
#[test]
fn corrections_are_those_of_the_step() {
    let corrected = optimizers().into_iter().filter(|optimizer| optimizer.row().corrections != Corrections::None);
    for (update, optimizer) in [Update::Fused, Update::Separate].into_iter().cycle().zip(corrected) {
        let (graph, output) = network(&[5], "Linear(4) | Linear(300)");
        // Two terms: the first one prepares the updates.
        let again = Term { weight: 0.5, target: 1, ..Term::MSE };
        let terms = [Term::DOT, again];
        let training = checked(&terms, optimizer, update);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let compiled = plan(&program, BATCH, Precision::F16);
        let placed = gpumem_core::memory::place::place(&compiled).unwrap();
        let format = (Precision::F16, CAPABILITY);
        let mut simulated = Simulated::new(placed, BATCH, compiled.budget[Line::Arena], optimizer, format, 0);
        let mut state = 0;
        for (id, tensor) in program.tensors.iter().enumerate() {
            let count = tensor.elements(BATCH).unwrap() as usize;
            match tensor.class {
                Class::Parameter | Class::Input | Class::Target => simulated.write(id, &spread(count, id + 1)),
                Class::Moment => simulated.write(id, &vec![0; count]),
                Class::State => state = id,
                _ => {}
            }
        }
        let mut words = vec![0; StateWord::COUNT];
        let mut weights = Vec::new();
        // The step, whether it is skipped, and whether the host sets it.
        for (step, skipped, set) in
            [(0, false, true), (1, false, false), (2, true, false), (2, false, false), (70_000, false, true)]
        {
            if set {
                words[StateWord::Step as usize] = step as u32;
            }
            let scale = if skipped { f32::INFINITY } else { 1.0 };
            words[StateWord::LossScale as usize] = scale.to_bits();
            words[StateWord::LearningRate as usize] = 0.125f32.to_bits();
            simulated.write(state, &words);
            simulated.step();
            words = simulated.read(state);
            let at = StateWord::Corrections as usize;
            assert_eq!(words[at..at + 2], corrections(optimizer, step), "step {step} of {optimizer:?}");
            assert_eq!(words[StateWord::Readers as usize], 0);
            assert_eq!(u64::from(words[StateWord::Step as usize]), step + u64::from(!skipped));
            let found = simulated.read(0);
            assert_eq!(found == weights, skipped, "step {step} of {update:?}");
            weights = found;
        }
    }
}

/// More parameters than the smaller kernel takes, and more than any launch does: the last launch is the end of the step.
#[test]
fn launches_take_so_many_parameters() {
    for (layers, precision, expected) in [
        (13, Precision::F32, vec![(27, "update_many")]),
        (90, Precision::Mixed(Half::F16), vec![(154, "update_many"), (27, "update_many")]),
        (92, Precision::F32, vec![(182, "update_many"), (3, "update")]),
    ] {
        let optimizer = Optimizer::AdamW(AdamW { lr: 0.5, eps: 1.0, weight_decay: 0.1, ..AdamW::DEFAULT });
        let mut graph = Graph::default();
        let input = graph.input(numbers(&[6])).unwrap();
        let output = (0..layers).fold(input, |x, _| chain(&mut graph, x, "LayerNorm"));
        let training = checked(&[Term::DOT], optimizer, Update::Separate);
        let program = lower(&graph, &[output], &Options { training: Some(training) }).unwrap();
        let placed = gpumem_core::memory::place::place(&plan(&program, 2, precision)).unwrap();
        let steps = steps_of(&placed, 2, precision, optimizer);
        let is_update = |step: &&gpumem_cuda::program_calls::OperationCalls| {
            placed.program.operations[step.first].action == Action::Update
        };
        let found: Vec<(usize, &str)> = steps
            .iter()
            .filter(is_update)
            .map(|step| match &step.calls[..] {
                [Call::Kernel(launch)] => (step.count, launch.kernel.entry),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected, "{layers}");
        // In 16 bits so many layers are more noise than signal.
        if precision == Precision::F32 {
            compare(&format!("{layers} layers"), &graph, output, training, 2, optimizer, 1, 5, 1e-3);
        }
    }
}

/// Each block counts itself once: where there are thousands, a launch of its own is the end of the step.
#[test]
fn an_update_of_many_blocks_is_not_the_end_of_the_step() {
    for (outputs, expected) in [(1024, ["update"].as_slice()), (1025, &["update", "advance"])] {
        let (graph, output) = network(&[1024], &format!("Linear({outputs}, bias = false)"));
        let optimizer = optimizers()[0];
        let training = training(&[Term::DOT], optimizer, Update::Fused);
        let placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
        let steps = steps_of(&placed, 1, Precision::F32, optimizer);
        let entries = steps.iter().flat_map(|step| &step.calls).filter_map(|call| match call {
            Call::Kernel(launch) => Some(launch.kernel.entry),
            _ => None,
        });
        let ends: Vec<&str> = entries.filter(|entry| ["update", "advance"].contains(entry)).collect();
        assert_eq!(ends, expected);
    }
}

/// A rule with corrections takes from the state what a loss has left there.
#[test]
fn an_update_without_the_loss_that_prepares_it_is_refused() {
    let (graph, output) = network(&[5], "Linear(4)");
    for optimizer in optimizers() {
        let is_refused = optimizer.row().corrections != Corrections::None;
        let training = training(&[Term::DOT], optimizer, Update::Fused);
        let mut placed = compile(&lower(&graph, &[output], &Options { training: Some(training) }).unwrap(), 1);
        placed.program.operations.retain(|operation| !matches!(operation.action, Action::Loss(_)));
        let setting = setting_of(1, optimizer);
        let found = gpumem_cuda::program_calls::steps(&placed, setting);
        let missing = Error::Damaged("an update without a loss, which prepares it");
        assert_eq!(found.err(), is_refused.then_some(missing), "{optimizer:?}");
    }
}

pub fn setting_of(batch: u64, optimizer: Optimizer) -> LaunchContext {
    LaunchContext {
        rank: 0,
        batch,
        precision: Precision::F32,
        optimizer,
        capability: CAPABILITY,
        multiprocessors: 132,
        tf32: false,
        deterministic: false,
        library: false,
        cudnn: false,
        operations: &Operations::NONE,
    }
}
