//! Several training steps over one set of weights: their inputs and graphs, in one arena.

use super::*;
use gpumem_core::lower::{Blueprint, PartStep, Parts, Steps};
use gpumem_core::memory::place::share_lasting;
use gpumem_core::program::Measure;
use gpumem_core::run::device::OtherStep;
use gpumem_core::train::{Clip, Descent};
use gpumem_core::{Checkpoint, ConvNorm};

/// The optimizer of each step.
fn optimizers() -> [Optimizer; 2] {
    let sgd = Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT };
    [Optimizer::Sgd(sgd), Optimizer::Adam(Adam { lr: 0.002, ..Adam::DEFAULT })]
}

/// One step trains the last layer by labels, the other all of the network by numbers. A bias in front of the normalisation would have a
/// gradient of rounding alone, which Adam makes as large as any.
pub(super) fn job_of_steps(precision: Precision, descents: [Descent; 2]) -> Job {
    let mut graph = Graph::default();
    let input = graph.input(numbers(&[2, 6, 6])).unwrap();
    let output =
        chain(&mut graph, input, "Conv2d(8, 3, padding = 1, bias = false) | BatchNorm2d | Relu | Flatten | Linear(5)");
    let [head, whole] = optimizers();
    let steps = |measure, optimizer: Optimizer, update, descent| Steps {
        loss: vec![Term::of(measure)],
        moments: optimizer.moments(),
        update,
        checkpoint: Checkpoint::Norms,
        descent,
        conv_norm: ConvNorm::Fused,
        ordered_at: None,
    };
    let [first, second] = descents;
    let all = vec![
        PartStep {
            name: "HEAD".into(),
            trains: "linear*".into(),
            steps: steps(Measure::CrossEntropy, head, Update::Fused, first),
        },
        PartStep {
            name: "WHOLE".into(),
            trains: "*".into(),
            steps: steps(Measure::Mse, whole, Update::Separate, second),
        },
    ];
    let parts = Parts { at: 0, all };
    let training = parts.all.first().map(|part| part.steps.clone());
    let blueprint = Blueprint { graph, outputs: vec![output], training, cached: None, parts };
    // Of a batch that is split, so many samples are a part.
    let compiled = |program: Program| plan(&program, BATCH * program.descent.parts(), precision);
    let step = |number: usize| {
        let compiled = compiled(blueprint.step(number).unwrap().training(precision).unwrap().unwrap());
        (place(&compiled).unwrap(), compiled.budget[Line::Arena])
    };
    let ((train, one), (other, two)) = (step(0), step(1));
    assert!(train.lasts_as(&other));
    let compiled = compiled(blueprint.evaluation().unwrap());
    let mut infer = place(&compiled).unwrap();
    let arena = share_lasting(&train, &mut infer, one.max(two), compiled.budget[Line::Arena]).unwrap();
    let evaluation = other.evaluation().unwrap();
    let others =
        vec![OtherStep { name: "WHOLE", batch: BATCH, train: other, evaluation, optimizer: whole, tf32: false }];
    Job {
        name: "test",
        arena,
        batch: BATCH,
        precision,
        evaluation: Some(train.evaluation().unwrap()),
        train: Some(train),
        others,
        infer,
        served: None,
        optimizer: head,
        tf32: false,
        deterministic: false,
        reserve: 0,
        settings: 0,
        operations: &OPERATIONS,
    }
}

pub(super) fn step_of(job: &Job, number: usize) -> &Placed {
    if number == 0 { job.train.as_ref().unwrap() } else { &job.others[number - 1].train }
}

/// The inputs and targets of a step: where each lies, and its bytes.
fn given(job: &Job, placed: &Placed, salt: usize) -> Vec<(u64, Vec<u8>)> {
    let is_given = |class| matches!(class, Class::Input | Class::Target);
    let tensors = placed.program.tensors.iter().zip(&placed.offsets).filter(|(tensor, _)| is_given(tensor.class));
    let bytes_of = |tensor: &gpumem_core::program::Tensor| {
        let count = tensor.elements(BATCH).unwrap() as usize;
        match tensor.role {
            Role::Index => bytes(&(0..count).map(|index| (index + salt) as u32 % CLASSES).collect::<Vec<_>>()),
            role => stored(job, role, &spread(count, 100 + salt)),
        }
    };
    tensors.map(|(tensor, &offset)| (offset, bytes_of(tensor))).collect()
}

/// One step of this number on a batch of its own, and its loss.
pub(super) fn make(job: &Job, runner: &mut (impl Runner + ?Sized), number: usize, salt: usize) -> f32 {
    runner.select(number).unwrap();
    let placed = step_of(job, number);
    let parts = placed.program.descent.micro_batches;
    for part in 0..parts {
        for (offset, bytes) in given(job, placed, 10 * salt + part as usize) {
            runner.feed(offset, &bytes).unwrap();
        }
        if part + 1 < parts { runner.accumulate(part).unwrap() } else { runner.train().unwrap() }
    }
    runner.loss(placed.offsets[placed.program.results[0] as usize]).unwrap()
}

/// Fills what lasts, with the state of each step.
pub(super) fn begin_steps(job: &Job, runner: &mut (impl Runner + ?Sized)) {
    begin(job, runner);
    let states: Vec<u64> = [0, 1]
        .map(|number| step_of(job, number))
        .into_iter()
        .map(|placed| placed.offsets[placed.program.state().unwrap() as usize])
        .collect();
    for (state, optimizer) in states.into_iter().zip(optimizers()) {
        let lr = (optimizer.lr() as f32).to_le_bytes();
        runner.write(state + 4 * StateWord::LearningRate as u64, &lr).unwrap();
    }
}

fn steps_of(job: &Job, runner: &mut impl Runner) -> [u32; 2] {
    [0, 1].map(|number| {
        let placed = step_of(job, number);
        let mut count = [0; 4];
        runner.read(placed.offsets[placed.program.state().unwrap() as usize], &mut count).unwrap();
        u32::from_le_bytes(count)
    })
}

fn load_steps(job: &Job) -> Session {
    register_steps(job);
    Cuda::new(0).unwrap().with_cudnn(false).load(job.clone()).unwrap()
}

/// Makes the kernels of all steps known to the card.
pub(super) fn register_steps(job: &Job) {
    let mut all = Vec::new();
    let mut turned = job.clone();
    let others = turned.others.iter_mut().flat_map(|other| [&mut other.train, &mut other.evaluation]);
    let programs = turned.train.iter_mut().chain(&mut turned.evaluation).chain([&mut turned.infer]).chain(others);
    order(&mut programs.collect::<Vec<_>>(), job.precision, CAPABILITY);
    let [head, whole] = optimizers();
    let first = turned.train.iter().chain(&turned.evaluation).chain([&turned.infer]).map(|placed| (placed, head));
    let further = turned.others.iter().flat_map(|other| [(&other.train, whole), (&other.evaluation, whole)]);
    for (placed, optimizer) in first.chain(further) {
        for products in [Products::Own, Products::Library, Products::WithoutCudnn] {
            for count in MULTIPROCESSORS {
                let target = (job.precision, CAPABILITY);
                all.extend(kernels(&products.steps_on(placed, BATCH, target, optimizer, count)));
            }
        }
    }
    let machine = Box::leak(Box::new(Machine::new(all.clone())));
    register(machine, all.iter());
}

/// Steps in turns are those of the CPU, with evaluations and forward passes between them, also where a batch is split and gradients clipped.
#[test]
fn steps_in_turns_are_those_of_the_cpu() {
    if !on_a_simulated_card("steps::steps_in_turns_are_those_of_the_cpu", &[]) {
        return;
    }
    let clipped = Descent { clip: Some(Clip::GlobalNorm(0.1)), ..Descent::PLAIN };
    let split = Descent { micro_batches: 2, ..Descent::PLAIN };
    for descents in [[Descent::PLAIN; 2], [split, clipped], [Descent::PLAIN, Descent { micro_batches: 3, ..clipped }]] {
        let job = job_of_steps(Precision::F32, descents);
        let mut card = load_steps(&job);
        let mut cpu = Cpu::with_threads(1).unwrap().with_poison(true).load(job.clone()).unwrap();
        begin_steps(&job, &mut card);
        begin_steps(&job, &mut cpu);
        for (salt, number) in [0, 1, 0, 0, 1, 1, 0, 1, 0].into_iter().enumerate() {
            let (found, expected) = (make(&job, &mut card, number, salt), make(&job, &mut cpu, number, salt));
            assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{number} {salt}: {found}, {expected}");
            if salt % 3 == 1 {
                let runners: [&mut dyn Runner; 2] = [&mut card, &mut cpu];
                let [found, expected] = runners.map(|runner| validated(&job, runner, salt));
                host::harness::assert_close("between two steps", &found, &expected, 1e-3);
            }
        }
        assert_eq!(steps_of(&job, &mut card), [5, 4]);
        assert_eq!(steps_of(&job, &mut cpu), [5, 4]);
        compare("nine steps", &state(&job, &mut card), &state(&job, &mut cpu));
    }
}

/// The losses of both steps without an update, and what a forward pass gives.
fn validated(job: &Job, runner: &mut dyn Runner, salt: usize) -> Vec<f32> {
    let mut found = Vec::new();
    for number in [0, 1] {
        runner.select(number).unwrap();
        let placed = step_of(job, number);
        given(job, placed, salt).into_iter().for_each(|(offset, bytes)| runner.write(offset, &bytes).unwrap());
        runner.evaluate().unwrap();
        let mut loss = [0; 4];
        runner.read(placed.offsets[placed.program.results[0] as usize], &mut loss).unwrap();
        found.push(f32::from_le_bytes(loss));
    }
    given(job, &job.infer, salt).into_iter().for_each(|(offset, bytes)| runner.write(offset, &bytes).unwrap());
    runner.infer().unwrap();
    let output = job.infer.program.results[0] as usize;
    let mut values = vec![0; job.infer.bytes[output] as usize];
    runner.read(job.infer.offsets[output], &mut values).unwrap();
    found.extend(values.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())));
    found
}

/// Many steps may be under way before the first loss is asked for.
#[test]
fn steps_are_enqueued_in_turns() {
    if !on_a_simulated_card("steps::steps_are_enqueued_in_turns", &[]) {
        return;
    }
    let job = job_of_steps(Precision::F32, [Descent::PLAIN; 2]);
    let (mut card, mut cpu) = (load_steps(&job), Cpu::with_threads(1).unwrap().load(job.clone()).unwrap());
    begin_steps(&job, &mut card);
    begin_steps(&job, &mut cpu);
    for salt in 0..12 {
        let number = salt % 2;
        card.select(number).unwrap();
        given(&job, step_of(&job, number), salt).into_iter().for_each(|(at, bytes)| card.feed(at, &bytes).unwrap());
        card.train().unwrap();
        cpu.select(number).unwrap();
        given(&job, step_of(&job, number), salt).into_iter().for_each(|(at, bytes)| cpu.feed(at, &bytes).unwrap());
        cpu.train().unwrap();
    }
    for number in [0, 1] {
        let placed = step_of(&job, number);
        let offset = placed.offsets[placed.program.results[0] as usize];
        let [found, expected] = [&mut card as &mut dyn Runner, &mut cpu].map(|runner| {
            runner.select(number).unwrap();
            runner.loss(offset).unwrap()
        });
        assert!((found - expected).abs() <= 1e-3 * expected.abs(), "{number}: {found}, {expected}");
    }
    compare("twelve steps", &state(&job, &mut card), &state(&job, &mut cpu));
}

/// Labels lie where the other step has its activations: they are looked at anew after it.
#[test]
fn indices_are_looked_at_after_another_step() {
    if !on_a_simulated_card("steps::indices_are_looked_at_after_another_step", &[]) {
        return;
    }
    let job = job_of_steps(Precision::F32, [Descent::PLAIN; 2]);
    let mut card = load_steps(&job);
    begin_steps(&job, &mut card);
    make(&job, &mut card, 0, 0);
    make(&job, &mut card, 1, 1);
    let (target, _) = at(step_of(&job, 0), Class::Target);
    card.select(0).unwrap();
    let error = card.feed(target, &bytes(&[0, CLASSES, 1])).unwrap_err();
    assert_eq!(error, Error::Index { what: "label", position: 1, value: CLASSES, limit: CLASSES.into() });
    // Bytes of numbers, where the first step would have labels, are no mistake of the second.
    make(&job, &mut card, 1, 2);
    // What is written in place of a batch is read back before the card follows it.
    card.select(0).unwrap();
    let written: Vec<(u64, Vec<u8>)> = given(&job, step_of(&job, 0), 3);
    written.into_iter().for_each(|(offset, bytes)| card.write(offset, &bytes).unwrap());
    card.write(target, &bytes(&[CLASSES + 1, 0, 1])).unwrap();
    let error = card.evaluate().unwrap_err();
    assert_eq!(error, Error::Index { what: "label", position: 0, value: CLASSES + 1, limit: CLASSES.into() });
    card.write(target, &bytes(&[0, 1, 2])).unwrap();
    card.evaluate().unwrap();
    assert!(card.select(2).is_err());
}

/// A step with states in host memory is refused beside others, rather than run with states of another.
#[test]
fn states_in_host_memory_are_refused_with_several_steps() {
    if !on_a_simulated_card("steps::states_in_host_memory_are_refused_with_several_steps", &[]) {
        return;
    }
    let offload = Descent { offload: gpumem_core::train::Offload::OptimizerState, ..Descent::PLAIN };
    let job = job_of_steps(Precision::F32, [offload; 2]);
    let error = Cuda::new(0).unwrap().load(job).unwrap_err().to_string();
    let message =
        "`test` has several training steps and `offload`, which go together on the CPU alone; remove `offload`";
    assert!(error.contains(message), "{error}");
}
