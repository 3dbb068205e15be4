//! Losses, optimizers, small operations, poisoning, and everything that is refused.

mod common;

use common::builder::{Builder, empty};
use common::{Input, OneLayer, Options, assert_close, read, write, write_words};
use gpumem_core::error::Error;
use gpumem_core::program::functions::Function;
use gpumem_core::program::loss::LossOptions;
use gpumem_core::program::ops::{Binary, BinaryFunction, MaxPool, Pointwise, Product, Rectifier, Sum, Window};
use gpumem_core::program::{Action, Class, Criterion, Measure, Op, Pass, Slot, StateWord, TensorId};
use gpumem_core::run::device::{Device, Job, Runner};
use gpumem_core::shape::Shape;
use gpumem_core::train::optim::{Adam, AdamW, Optimizer, Sgd};
use gpumem_core::{Half, Precision, Role};
use gpumem_cpu::{Cpu, Session};

fn forward(op: impl Into<Op>) -> Action {
    Action::Run { op: op.into(), pass: Pass::Forward }
}

fn load(job: Job) -> Session {
    Cpu::new().with_poison(true).load(job).unwrap()
}

/// A network that is nothing but a loss over persistent logits; returns loss and gradient.
fn loss(
    kind: Measure,
    [batch, outer, classes, inner]: [u64; 4],
    logits: &[f32],
    targets: &[u32],
    in_place: bool,
) -> Result<(f32, Vec<f32>), Error> {
    let mut b = Builder::new(true, batch);
    let shape = [outer, classes, inner];
    let x = b.tensor(Class::Buffer, Role::Activation, &shape, true);
    let t = match kind {
        Measure::CrossEntropy => b.tensor(Class::Target, Role::Index, &[outer, inner], true),
        _ => b.tensor(Class::Target, Role::Activation, &shape, true),
    };
    let dx = if in_place { x } else { b.tensor(Class::Buffer, Role::Activation, &shape, true) };
    let l = b.tensor(Class::Buffer, Role::Statistic, &[1], false);
    let criterion = Criterion {
        kind,
        outer,
        whole: outer,
        first: 0,
        classes,
        inner,
        weight: 1.0,
        options: LossOptions::DEFAULT,
        learned: [false; 2],
        again: false,
    };
    let reads = [(Slot::Input(0), x), (Slot::Target, t)];
    b.operation(Action::Loss(criterion), &reads, &[(Slot::Loss, l), (Slot::InputGradient(0), dx)], false);
    let job = b.job();
    let offsets = job.train.as_ref().unwrap().offsets.clone();
    let mut session = load(job);
    write(&mut session, offsets[x as usize], logits);
    write_words(&mut session, offsets[t as usize], targets);
    session.train()?;
    let gradient = read(&mut session, offsets[dx as usize], logits.len());
    Ok((read(&mut session, offsets[l as usize], 1)[0], gradient))
}

#[test]
fn cross_entropy_is_the_mean_over_positions() {
    let sizes = [2, 3, 4, 35];
    let logits = common::numbers(2 * 3 * 4 * 35, 1, 3.0);
    let labels: Vec<u32> = (0..2 * 3 * 35).map(|i| (i * 7 + i / 5) % 4).collect();
    let at = |slab: usize, class: usize, position: usize| (slab * 4 + class) * 35 + position;
    let (mut sum, mut gradient) = (0.0, vec![0.0; logits.len()]);
    for slab in 0..6 {
        for position in 0..35 {
            let x: Vec<f64> = (0..4).map(|class| f64::from(logits[at(slab, class, position)])).collect();
            let total: f64 = x.iter().map(|x| x.exp()).sum();
            let label = labels[slab * 35 + position] as usize;
            sum += total.ln() - x[label];
            for class in 0..4 {
                let hit = f64::from(u8::from(class == label));
                gradient[at(slab, class, position)] = (x[class].exp() / total - hit) / 210.0;
            }
        }
    }
    let apart = loss(Measure::CrossEntropy, sizes, &logits, &labels, false).unwrap();
    assert_close(&[apart.0], &[sum / 210.0], 1e-6);
    assert_close(&apart.1, &gradient, 1e-7);
    assert_eq!(apart, loss(Measure::CrossEntropy, sizes, &logits, &labels, true).unwrap());
}

#[test]
fn squared_errors_and_products() {
    let targets = [1.0f32, 0.0, -2.0, 4.0].map(f32::to_bits);
    for in_place in [false, true] {
        let (mean, gradient) = loss(Measure::Mse, [2, 1, 2, 1], &[2.0, 0.5, 0.0, 4.0], &targets, in_place).unwrap();
        assert_eq!((mean, gradient), (5.25 / 4.0, vec![0.5, 0.25, 1.0, 0.0]));
        let (sum, gradient) = loss(Measure::Dot, [2, 1, 2, 1], &[2.0, 0.5, 3.0, 4.0], &targets, in_place).unwrap();
        assert_eq!((sum, gradient), (12.0, vec![1.0, 0.0, -2.0, 4.0]));
    }
}

/// The values of a parameter over `steps` updates with the gradient `0.5 * w + 0.1`, by the session.
fn updates(optimizer: Optimizer, steps: usize) -> Vec<f32> {
    let moments = optimizer.moments();
    let mut b = Builder::new(true, 1);
    let w = b.tensor(Class::Parameter, Role::Weight, &[3], false);
    let g = b.tensor(Class::Gradient, Role::Weight, &[3], false);
    let moments: Vec<_> = (0..moments).map(|_| b.tensor(Class::Moment, Role::Moment, &[3], false)).collect();
    let state = b.tensor(Class::State, Role::State, &[StateWord::COUNT as u64], false);
    let mut both = vec![(Slot::Parameter, w)];
    both.extend(moments.iter().enumerate().map(|(i, &m)| (Slot::Moment(i as u8), m)));
    let mut reads = both.clone();
    reads.extend([(Slot::ParameterGradient, g), (Slot::State, state)]);
    b.operation(Action::Update, &reads, &both, false);
    b.operation(Action::Advance, &[(Slot::State, state)], &[(Slot::State, state)], false);
    let mut job = b.job();
    job.optimizer = optimizer;
    let offsets = job.train.as_ref().unwrap().offsets.clone();
    let mut session = load(job);
    let mut weights = vec![1.0f32, -2.0, 0.5];
    write(&mut session, offsets[w as usize], &weights);
    let mut first = Vec::new();
    for _ in 0..steps {
        let gradient: Vec<f32> = weights.iter().map(|w| 0.5 * w + 0.1).collect();
        write(&mut session, offsets[g as usize], &gradient);
        session.train().unwrap();
        weights = read(&mut session, offsets[w as usize], 3);
        first.push(weights[0]);
    }
    first
}

#[test]
fn packed_copies_of_weights_follow_the_weights() {
    // So many rows that the product packs the weight.
    const BATCH: u64 = 200;
    let mut b = Builder::new(true, 1);
    let w = b.tensor(Class::Parameter, Role::Weight, &[6], false);
    let g = b.tensor(Class::Gradient, Role::Weight, &[6], false);
    let state = b.tensor(Class::State, Role::State, &[StateWord::COUNT as u64], false);
    let reads = [(Slot::Parameter, w), (Slot::ParameterGradient, g), (Slot::State, state)];
    b.operation(Action::Update, &reads, &[(Slot::Parameter, w)], false);
    b.operation(Action::Advance, &[(Slot::State, state)], &[(Slot::State, state)], false);
    let mut job = b.job();
    job.optimizer = Optimizer::Sgd(Sgd { lr: 0.5, ..Sgd::DEFAULT });
    let offsets = job.train.as_ref().unwrap().offsets.clone();
    // The forward pass has its own tensors after those of the step, and the same parameter.
    let (forward_pass, [x, weight, y]) = linear_of(BATCH);
    let forward_pass = forward_pass.job();
    job.infer = forward_pass.infer;
    job.infer.offsets.iter_mut().for_each(|offset| *offset += job.arena);
    job.infer.offsets[weight as usize] = offsets[w as usize];
    let [x, y] = [x, y].map(|tensor| job.infer.offsets[tensor as usize]);
    job.arena += forward_pass.arena;
    job.batch = BATCH;

    let mut session = load(job);
    let inputs = common::numbers(BATCH as usize * 3, 5, 1.0);
    let check = |session: &mut Session, weights: [f32; 6]| {
        write(session, x, &inputs);
        session.infer().unwrap();
        let product = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
        let rows = inputs.chunks_exact(3);
        let expected: Vec<f64> = rows.flat_map(|x| weights.chunks_exact(3).map(move |w| product(x, w))).collect();
        assert_close(&read(session, y, expected.len()), &expected, 1e-6);
    };
    for mut weights in [[1.0, -2.0, 0.5, 3.0, 0.25, -1.0], [0.5, 1.0, -1.5, 2.0, 4.0, 0.125]] {
        write(&mut session, offsets[w as usize], &weights);
        check(&mut session, weights);
        // The second pass has the copy of the first.
        check(&mut session, weights);
        // One element of the parameter.
        weights[1] = 7.0;
        write(&mut session, offsets[w as usize] + 4, &[7.0]);
        check(&mut session, weights);
        write(&mut session, offsets[g as usize], &[1.0; 6]);
        session.train().unwrap();
        check(&mut session, weights.map(|w| w - 0.5));
    }
}

#[test]
fn optimizers_follow_their_rules() {
    let gradient = |w: f64| 0.5 * w + 0.1;
    for nesterov in [false, true] {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, dampening: 0.2, weight_decay: 0.01, nesterov, ..Sgd::DEFAULT };
        let (mut w, mut v, mut expected) = (1.0, 0.0, Vec::new());
        for step in 0..4 {
            let g = gradient(w) + 0.01 * w;
            v = if step == 0 { g } else { 0.9 * v + 0.8 * g };
            w -= 0.1 * if nesterov { g + 0.9 * v } else { v };
            expected.push(w);
        }
        assert_close(&updates(Optimizer::Sgd(sgd), 4), &expected, 1e-6);
    }
    assert_close(&updates(Optimizer::Sgd(Sgd { lr: 0.1, ..Sgd::DEFAULT }), 1), &[1.0 - 0.1 * 0.6], 1e-6);
    for decoupled in [false, true] {
        let (lr, betas, eps, weight_decay) = (0.05, (0.8, 0.9), 1e-8, 0.1);
        let (mut w, mut m, mut v, mut expected) = (1.0f64, 0.0, 0.0, Vec::new());
        for t in 1..=4 {
            let mut g = gradient(w);
            if decoupled {
                w *= 1.0 - lr * weight_decay;
            } else {
                g += weight_decay * w;
            }
            m = 0.8 * m + 0.2 * g;
            v = 0.9 * v + 0.1 * g * g;
            w -= lr / (1.0 - 0.8f64.powi(t)) * m / ((v / (1.0 - 0.9f64.powi(t))).sqrt() + eps);
            expected.push(w);
        }
        let optimizer = if decoupled {
            Optimizer::AdamW(AdamW { lr, betas, eps, weight_decay, ..AdamW::DEFAULT })
        } else {
            Optimizer::Adam(Adam { lr, betas, eps, weight_decay, ..Adam::DEFAULT })
        };
        assert_close(&updates(optimizer, 4), &expected, 1e-6);
    }
}

#[test]
fn gradients_are_added_copied_and_summed_over_the_batch() {
    let mut b = Builder::new(false, 3);
    let x = b.tensor(Class::Input, Role::Activation, &[2], true);
    let y = b.tensor(Class::Buffer, Role::Activation, &[2], true);
    let sum = b.tensor(Class::Buffer, Role::Activation, &[2], false);
    b.program.results = vec![y];
    b.operation(Action::Copy, &[(Slot::Input(0), x)], &[(Slot::Output, y)], false);
    b.operation(Action::Accumulate, &[(Slot::Input(0), x), (Slot::Output, y)], &[(Slot::Output, y)], false);
    b.operation(Action::SumBatch, &[(Slot::Gradient, y)], &[(Slot::InputGradient(0), sum)], false);
    b.operation(Action::SumBatch, &[(Slot::Gradient, x)], &[(Slot::InputGradient(0), sum)], true);
    let job = b.job();
    let offsets = job.infer.offsets.clone();
    let mut session = load(job);
    write(&mut session, offsets[x as usize], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    session.infer().unwrap();
    assert_eq!(read(&mut session, offsets[y as usize], 6), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(read(&mut session, offsets[sum as usize], 2), [27.0, 36.0]);
}

#[test]
fn a_branch_may_be_joined_with_itself() {
    let shape = Shape::new(&[2]);
    let mut b = Builder::new(false, 1);
    let x = b.tensor(Class::Buffer, Role::Activation, &[2], true);
    let both = [(Slot::Input(0), x), (Slot::Input(1), x)];
    b.operation(forward(Sum { branches: 2, shape }), &both, &[(Slot::Output, x)], false);
    let product = Binary { function: BinaryFunction::Multiply, left: shape, right: shape };
    b.operation(forward(product), &both, &[(Slot::Output, x)], false);
    let mut session = load(b.job());
    write(&mut session, 0, &[1.5, -2.0]);
    session.infer().unwrap();
    assert_eq!(read(&mut session, 0, 2), [9.0, 16.0]);
}

#[test]
fn a_tensor_read_after_its_life_is_nan() {
    let shape = Shape::new(&[4]);
    let relu = || forward(Pointwise { function: Function::Relu, arguments: Vec::new(), shape });
    for early in [false, true] {
        let mut b = Builder::new(false, 1);
        let x = b.tensor(Class::Input, Role::Activation, &[4], true);
        let middle = b.tensor(Class::Transient, Role::Activation, &[4], true);
        let y = b.tensor(Class::Transient, Role::Activation, &[4], true);
        b.operation(relu(), &[(Slot::Input(0), x)], &[(Slot::Output, middle)], false);
        b.operation(relu(), &[(Slot::Input(0), middle)], &[(Slot::Output, y)], false);
        b.program.results = vec![y];
        if early {
            b.program.tensors[middle as usize].last = 0;
        }
        let job = b.job();
        let offset = job.infer.offsets[y as usize];
        let mut session = load(job);
        write(&mut session, 0, &[1.0; 4]);
        session.infer().unwrap();
        assert_eq!(read(&mut session, offset, 4)[0].is_nan(), early);
    }
}

#[test]
fn places_outside_the_map_are_passed_over() {
    for (size, role) in [(2, Role::Byte), (16, Role::Index)] {
        let window = Window { kernel_size: [size; 2], stride: [size; 2], padding: [0, 0], dilation: [1, 1] };
        let pool = MaxPool { channels: 1, window, adaptive: false, input: [size; 2], output: [1, 1] };
        assert_eq!(pool.place_role(), role);
        let mut b = Builder::new(true, 1);
        let places = b.tensor(Class::Buffer, role, &[1, 1, 1], true);
        let dy = b.tensor(Class::Buffer, Role::Activation, &[1, 1, 1], true);
        let dx = b.tensor(Class::Buffer, Role::Activation, &[1, size, size], true);
        let reads = [(Slot::Gradient, dy), (Slot::Saved(0), places)];
        let action = Action::Run { op: pool.into(), pass: Pass::Backward };
        b.operation(action, &reads, &[(Slot::InputGradient(0), dx)], false);
        let mut session = load(b.job());
        let count = (size * size) as usize;
        let mut run = |place: &[u8]| {
            session.write(0, place).unwrap();
            write(&mut session, 256, &[3.0]);
            write(&mut session, 512, &vec![1.0; count]);
            session.train().unwrap();
            read(&mut session, 512, count)
        };
        let [none, last] = match role {
            Role::Byte => [vec![u8::MAX], vec![3]],
            _ => [u32::MAX.to_le_bytes().to_vec(), 255u32.to_le_bytes().to_vec()],
        };
        assert_eq!(run(&none), vec![0.0; count]);
        let mut expected = vec![0.0; count];
        expected[count - 1] = 3.0;
        assert_eq!(run(&last), expected);
    }
}

/// The bit says that a slope is another one than at 0: of what is above 0, of a NaN, and not of either 0.
#[test]
fn bits_of_numbers_at_the_edge() {
    let x =
        [1.5, -1.5, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 4.0, -1e-45, 6.0, 7.0];
    let of = |function, arguments: &[f64]| Rectifier {
        of: Pointwise { function, arguments: arguments.to_vec(), shape: Shape::new(&[11]) },
    };
    for (op, bits, slopes) in [
        (of(Function::Relu, &[]), [0b1011_0001, 0b110], [0.0, 1.0]),
        (of(Function::Relu6, &[]), [0b1001_0001, 0], [0.0, 1.0]),
        (of(Function::LeakyRelu, &[0.25]), [0b1011_0001, 0b110], [0.25, 1.0]),
        // Both slopes are one: whatever is not NaN is on one side.
        (of(Function::LeakyRelu, &[1.0]), [0b0001_0000, 0], [1.0, 1.0]),
    ] {
        let mut b = Builder::new(true, 1);
        let input = b.tensor(Class::Buffer, Role::Activation, &[11], true);
        let output = b.tensor(Class::Buffer, Role::Activation, &[11], true);
        let kept = b.tensor(Class::Buffer, Role::Bit, &[11], true);
        let dx = b.tensor(Class::Buffer, Role::Activation, &[11], true);
        b.operation(
            forward(op.clone()),
            &[(Slot::Input(0), input)],
            &[(Slot::Output, output), (Slot::Saved(0), kept)],
            false,
        );
        let action = Action::Run { op: op.clone().into(), pass: Pass::Backward };
        let reads = [(Slot::Gradient, input), (Slot::Saved(0), kept)];
        b.operation(action, &reads, &[(Slot::InputGradient(0), dx)], false);
        let mut session = load(b.job());
        write(&mut session, 0, &x);
        session.train().unwrap();
        let mut found = [0; 2];
        session.read(512, &mut found).unwrap();
        assert_eq!(found, bits, "{op:?}");
        let expected = x.iter().enumerate().map(|(at, dy)| dy * slopes[usize::from(bits[at / 8] >> (at % 8) & 1)]);
        // All NaN are one.
        let bits_of = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        let expected: Vec<u32> = expected.map(bits_of).collect();
        let found: Vec<u32> = read(&mut session, 768, 11).into_iter().map(bits_of).collect();
        assert_eq!(found, expected, "{op:?}");
    }
}

#[test]
fn bad_indices_are_refused_before_anything_runs() {
    let found = loss(Measure::CrossEntropy, [3, 1, 2, 1], &[0.0; 6], &[0, 1, 2], false);
    assert_eq!(found.unwrap_err(), Error::Index { what: "label", position: 2, value: 2, limit: 2 });
    let mut net = OneLayer::new("Embedding(4, 3)", &[Input::Tokens(vec![0, 9, 1, 3])], Options::default());
    let (_, gradient) = net.gradients[0];
    let before = net.get(gradient);
    assert_eq!(net.run().unwrap_err(), Error::Index { what: "token", position: 1, value: 9, limit: 4 });
    assert_eq!(net.get(gradient), before);
    let inputs = [Input::Numbers(vec![4, 3]), Input::Tokens(vec![2, 0, 3, 1, 4, 7])];
    let mut net = OneLayer::new("Take", &inputs, Options::default());
    let (_, gradient) = net.gradients[0];
    let before = net.get(gradient);
    assert_eq!(net.run().unwrap_err(), Error::Index { what: "step", position: 4, value: 4, limit: 4 });
    assert_eq!(net.get(gradient), before);
}

/// One linear layer for inference: its input, its weight and its output.
fn linear_of(batch: u64) -> (Builder, [TensorId; 3]) {
    let mut b = Builder::new(false, batch);
    let x = b.tensor(Class::Input, Role::Activation, &[3], true);
    let w = b.tensor(Class::Parameter, Role::Weight, &[2, 3], false);
    let y = b.tensor(Class::Transient, Role::Activation, &[2], true);
    let shape = Shape::new(&[2]);
    let product = Product { rows: 1, in_features: 3, out_features: 2, bias: false, transposed: false, shape };
    let reads = [(Slot::Input(0), x), (Slot::Input(1), w)];
    b.operation(forward(product), &reads, &[(Slot::Output, y)], false);
    b.program.results = vec![y];
    (b, [x, w, y])
}

/// One linear layer for inference, as a job to damage.
fn linear() -> Job {
    linear_of(2).0.job()
}

#[test]
fn what_cannot_run_is_refused_at_load() {
    let load = |change: &dyn Fn(&mut Job)| {
        let mut job = linear();
        change(&mut job);
        Cpu::new().load(job).map(|_| ())
    };
    assert_eq!(load(&|_| ()), Ok(()));
    let refused = load(&|job| job.precision = Precision::Mixed(Half::Bf16)).unwrap_err().to_string();
    assert!(refused.ends_with("it runs F32 only; `Cpu::new().emulate()` runs it in F32"), "{refused}");
    assert!(matches!(load(&|job| job.infer.offsets[2] = 1 << 40), Err(Error::Range { .. })));
    assert!(matches!(load(&|job| job.arena = 256), Err(Error::Range { .. })));
    assert!(matches!(load(&|job| job.arena = u64::MAX), Err(Error::Memory { .. })));
    let damages: [&dyn Fn(&mut Job); 10] = [
        &|job| job.infer.offsets[1] += 4,
        &|job| job.infer.offsets[2] = job.infer.offsets[0],
        &|job| job.infer.offsets.truncate(2),
        &|job| job.batch = 0,
        &|job| job.infer.program.tensors[1].shape = Shape::new(&[2, 4]),
        &|job| job.infer.program.tensors[1].shape = Shape::new(&[u64::MAX, 2]),
        &|job| job.infer.program.tensors[0].role = Role::Index,
        &|job| job.infer.program.operations[0].reads.truncate(1),
        &|job| job.infer.program.operations[0].reads[0].tensor = 99,
        &|job| job.infer.program.operations[0].writes[0].tensor = 0,
    ];
    for (index, damage) in damages.iter().enumerate() {
        assert!(matches!(load(damage), Err(Error::Damaged(_))), "damage {index}: {:?}", load(damage));
    }
}

#[test]
fn a_session_refuses_what_it_was_not_made_for() {
    let mut session = load(linear());
    assert!(matches!(session.train(), Err(Error::Unsupported { .. })));
    let arena = linear().arena;
    assert!(matches!(session.write(arena - 2, &[0; 4]), Err(Error::Range { .. })));
    assert!(matches!(session.read(u64::MAX, &mut [0; 4]), Err(Error::Range { .. })));
    let mut b = Builder::new(true, 1);
    let w = b.tensor(Class::Parameter, Role::Weight, &[3], false);
    let g = b.tensor(Class::Gradient, Role::Weight, &[3], false);
    let state = b.tensor(Class::State, Role::State, &[StateWord::COUNT as u64], false);
    let reads = [(Slot::Parameter, w), (Slot::ParameterGradient, g), (Slot::State, state)];
    b.operation(Action::Update, &reads, &[(Slot::Parameter, w)], false);
    let mut session = load(Job { infer: empty(), ..b.job() });
    session.train().unwrap();
    session.set_optimizer(Optimizer::Adam(Adam::DEFAULT)).unwrap();
    assert!(matches!(session.train(), Err(Error::Unsupported { .. })));
}

#[test]
fn no_threads_are_an_error() {
    let error = Cpu::with_threads(0).unwrap_err().to_string();
    assert_eq!(error, "the CPU: nothing runs on 0 threads; use 1 or more, or Cpu::new()");
}
