//! Sessions that keep the weights of convolutions channels last, while the host has them as PyTorch does.

use super::*;
use crate::host::harness::layouts::{WAYS, arrange};

/// Weights that are no multiples of anything, one of groups, one of a transpose; maps between the first and the last may have any
/// layout as well.
const LAYERS: &str = "Conv2d(4, 3, padding = 1) | Tanh | Conv2d(6, [3; 2], padding = 1, groups = 2, bias = false) | Tanh | \
                      Conv2d(3, 1) | Tanh | ConvTranspose2d(5, [2; 3]) | Tanh | Conv2d(2, 2) | Tanh | Flatten | Linear(5)";

fn plain(precision: Precision) -> Job {
    job_of(&[3, 5, 6], LAYERS, Optimizer::Adam(Adam { lr: 0.01, ..Adam::DEFAULT }), precision)
}

/// The same with other layouts, given to programs that have their places.
fn arranged(mut job: Job, way: usize) -> Job {
    for placed in job.train.iter_mut().chain([&mut job.infer]) {
        assert!(arrange(&mut placed.program, way) > 0);
        let turned =
            placed.program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter && tensor.is_turned());
        assert_eq!(turned.count(), 5, "convolutions");
    }
    job
}

/// Channels last: all, and weights alone.
const ALL: [usize; 2] = [0, WAYS - 1];

#[test]
fn weights_are_trained_channels_last() {
    if !on_a_simulated_card("weights::weights_are_trained_channels_last", &[]) {
        return;
    }
    for way in ALL {
        let (plain, turned) = (plain(Precision::F32), arranged(plain(Precision::F32), way));
        let mut card = load(&turned);
        let mut cpu = Cpu::with_threads(1).unwrap().load(plain.clone()).unwrap();
        begin(&plain, &mut card);
        begin(&plain, &mut cpu);
        assert_eq!(state(&plain, &mut card), state(&plain, &mut cpu), "what was written is read");
        for step in 0..4 {
            feed(&plain, &mut cpu, step);
            cpu.train().unwrap();
            feed(&plain, &mut card, step);
            card.train().unwrap();
            let (found, expected) = (loss(&plain, &mut card), loss(&plain, &mut cpu));
            assert!((found - expected).abs() < 1e-4, "way {way}, step {step}: {found}, {expected}");
        }
        compare(&format!("way {way}"), &state(&plain, &mut card), &state(&plain, &mut cpu));
        let (input, count) = at(&plain.infer, Class::Input);
        let output = plain.infer.offsets[plain.infer.program.results[0] as usize];
        let infer = |runner: &mut dyn Runner| {
            runner.write(input, &bytes(&spread(count, 9))).unwrap();
            runner.infer().unwrap();
            let mut bytes = vec![0; (BATCH as usize) * CLASSES as usize * 4];
            runner.read(output, &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<f32>>()
        };
        host::harness::assert_close("inference", &infer(&mut card), &infer(&mut cpu), 1e-4);
    }
}

/// Updates of all parameters are one launch whatever the order of a weight is.
#[test]
fn updates_are_made_together_in_any_order() {
    let steps = |job: &Job| {
        let placed = job.train.as_ref().unwrap();
        let steps = Products::Own.steps(placed, BATCH, (job.precision, CAPABILITY), job.optimizer);
        let of_updates = |step: &&gpumem_cuda::program_calls::OperationCalls| {
            placed.program.operations[step.first].action == gpumem_core::program::Action::Update
        };
        steps.iter().filter(of_updates).map(|step| step.count).collect::<Vec<usize>>()
    };
    let expected = steps(&plain(Precision::F32));
    assert!(expected.iter().any(|&count| count > 1), "{expected:?}");
    for way in ALL {
        assert_eq!(steps(&arranged(plain(Precision::F32), way)), expected);
    }
}

/// Master copies, weights of 16 bits and moments are exchanged as the host has them, and belong together after steps.
#[test]
fn copies_of_weights_are_turned_alike() {
    if !on_a_simulated_card("weights::copies_of_weights_are_turned_alike", &[]) {
        return;
    }
    let precision = Precision::Mixed(Half::Bf16);
    let (plain, turned) = (plain(precision), arranged(plain(precision), 0));
    let mut cards = [load(&plain), load(&turned)];
    cards.iter_mut().for_each(|card| begin(&plain, card));
    let placed = plain.train.as_ref().unwrap();
    let read = |card: &mut Session, id: usize| {
        let count = placed.program.tensors[id].elements(BATCH).unwrap() as usize;
        let (mut wide, mut short) = (vec![0; 4 * count], vec![0; 2 * count]);
        card.read(placed.masters[id].unwrap(), &mut wide).unwrap();
        card.read(placed.offsets[id], &mut short).unwrap();
        let wide: Vec<u32> = wide.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let short: Vec<u16> = short.chunks_exact(2).map(|half| u16::from_le_bytes(half.try_into().unwrap())).collect();
        (wide, short)
    };
    let copied: Vec<usize> = (0..placed.masters.len()).filter(|&id| placed.masters[id].is_some()).collect();
    let all = |cards: &mut [Session; 2], step: usize| {
        for &id in &copied {
            let name = &placed.program.tensors[id].name;
            let [(expected, _), (found, short)] = cards.each_mut().map(|card| read(card, id));
            let halves: Vec<u16> = found.iter().map(|&word| narrow(precision, word)).collect();
            assert_eq!(halves, short, "step {step}, {name}");
            if step == 0 {
                assert_eq!(found, expected, "{name}");
            }
            let [found, expected] =
                [found, expected].map(|words| words.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
            // Adam goes as far for a rounding error as for a slope.
            let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 0.025 * step as f32 + 1e-6, "step {step}, {name}: {apart}");
        }
    };
    all(&mut cards, 0);
    for step in 0..2 {
        let losses = cards.each_mut().map(|card| {
            feed(&plain, card, step);
            card.train().unwrap();
            loss(&plain, card)
        });
        assert!((losses[0] - losses[1]).abs() < 2e-2 * losses[0].abs(), "step {step}: {losses:?}");
        all(&mut cards, step + 1);
    }
}

/// Filters are exchanged one by one as the weight is whole.
#[test]
fn filters_are_turned_one_by_one() {
    if !on_a_simulated_card("weights::filters_are_turned_one_by_one", &[]) {
        return;
    }
    let job = arranged(plain(Precision::F32), WAYS - 1);
    let mut card = load(&job);
    let placed = job.train.as_ref().unwrap();
    let mut weights = 0;
    for (tensor, &offset) in placed.program.tensors.iter().zip(&placed.offsets) {
        if tensor.class != Class::Parameter || !tensor.is_turned() {
            continue;
        }
        let whole = bytes(&spread(tensor.elements(1).unwrap() as usize, 3));
        let filter = whole.len() / tensor.shape.dims()[0] as usize;
        for (at, bytes) in whole.chunks(filter).enumerate() {
            card.write(offset + (at * filter) as u64, bytes).unwrap();
        }
        let mut read = vec![0; whole.len()];
        card.read(offset, &mut read).unwrap();
        assert_eq!(read, whole, "{}", tensor.name);
        for (at, bytes) in whole.chunks(filter).enumerate() {
            card.read(offset + (at * filter) as u64, &mut read[..filter]).unwrap();
            assert_eq!(read[..filter], *bytes, "filter {at} of {}", tensor.name);
        }
        weights += 1;
    }
    assert_eq!(weights, 5);
}

/// A filter cannot be read in part, and two programs must keep a weight alike.
#[test]
fn what_cannot_be_turned_is_refused() {
    if !on_a_simulated_card("weights::what_cannot_be_turned_is_refused", &[]) {
        return;
    }
    let turned = arranged(plain(Precision::F32), WAYS - 1);
    let mut card = load(&turned);
    let placed = turned.train.as_ref().unwrap();
    let id = placed.program.tensors.iter().position(|tensor| tensor.class == Class::Parameter && tensor.is_turned());
    let error = card.read(placed.offsets[id.unwrap()], &mut [0; 8]).unwrap_err();
    assert!(error.to_string().contains("in part"), "{error}");
    let other = Job { infer: plain(Precision::F32).infer, ..turned };
    let error = Cuda::new(0).unwrap().with_cudnn(false).load(other).unwrap_err();
    assert!(error.to_string().contains("different orders"), "{error}");
}

/// A training with codes goes on elsewhere, from a card on which the weight lies channels last: codes are in the order of its shape there as
/// well, and so are their blocks.
#[test]
fn codes_are_exchanged_as_the_host_has_them() {
    if !on_a_simulated_card("weights::codes_are_exchanged_as_the_host_has_them", &[]) {
        return;
    }
    let optimizer = Optimizer::AdamW8bit(AdamW8bit { lr: 0.01, eps: 1e-4, ..AdamW8bit::DEFAULT });
    let (moments, update) = (optimizer.moments(), Update::Fused);
    let loss_terms = &[Term::CROSS_ENTROPY];
    let training = Training {
        loss: loss_terms,
        moments,
        update,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent::PLAIN,
    };
    let layers = "Conv2d(16, 1) | Conv2d(32, 3) | Tanh | Flatten | Linear(5)";
    let plain = job_training(&[16, 5, 5], layers, optimizer, Precision::F32, (training, None));
    let mut turned = plain.clone();
    for placed in turned.train.iter_mut().chain([&mut turned.infer]) {
        let weights = placed.program.tensors.iter_mut().filter(|it| !it.batched && it.shape.dims().ends_with(&[3, 3]));
        weights.for_each(|weight| weight.layout = gpumem_core::program::Layout::CHANNELS_LAST);
        assert!(placed.program.tensors.iter().any(|tensor| tensor.is_turned()));
    }
    let mut card = load(&turned);
    begin(&plain, &mut card);
    for step in 0..3 {
        feed(&plain, &mut card, step);
        card.train().unwrap();
    }
    let mut cpu = Cpu::with_threads(1).unwrap().load(plain.clone()).unwrap();
    let placed = plain.train.as_ref().unwrap();
    let mut codes = 0;
    for (id, tensor) in placed.program.tensors.iter().enumerate() {
        if !matches!(tensor.class, Class::Parameter | Class::Moment | Class::State) {
            continue;
        }
        let mut bytes = vec![0; placed.bytes[id] as usize];
        card.read(placed.offsets[id], &mut bytes).unwrap();
        cpu.write(placed.offsets[id], &bytes).unwrap();
        codes += usize::from(tensor.role == Role::Code && bytes.iter().any(|&code| code != 0));
    }
    assert_eq!(codes, 2);
    for step in 3..6 {
        feed(&plain, &mut card, step);
        card.train().unwrap();
        feed(&plain, &mut cpu, step);
        cpu.train().unwrap();
        let (found, expected) = (loss(&plain, &mut card), loss(&plain, &mut cpu));
        assert!((found - expected).abs() < 1e-4, "step {step}: {found}, {expected}");
    }
    compare("after a move", &state(&plain, &mut card), &state(&plain, &mut cpu));
}

/// The order that a device chooses is that of a weight's average, too, and both are exchanged as the host has them.
#[test]
fn averages_lie_as_their_weights() {
    if !on_a_simulated_card("weights::averages_lie_as_their_weights", &[]) {
        return;
    }
    let optimizer = Optimizer::Sgd(Sgd { lr: 0.01, momentum: 0.9, ..Sgd::DEFAULT });
    let ema = Some(gpumem_core::train::Ema { decay: 0.5, ..gpumem_core::train::Ema::DEFAULT });
    let loss_terms = &[Term::CROSS_ENTROPY];
    let training = Training {
        loss: loss_terms,
        moments: optimizer.moments(),
        update: Update::Fused,
        skips_overflow: false,
        input_gradient: false,
        descent: gpumem_core::train::Descent { ema, ..gpumem_core::train::Descent::PLAIN },
    };
    let layers = "Conv2d(16, 1) | Conv2d(32, 3) | Conv2d(8, 1) | Tanh | Flatten | Linear(5)";
    let plain = job_training(&[16, 5, 5], layers, optimizer, Precision::F32, (training, None));
    let mut turned = plain.clone();
    let train = turned.train.as_mut().unwrap();
    gpumem_core::memory::layout::channels_last::channels_last(&mut [train, &mut turned.infer]);
    let averages = |job: &Job| -> Vec<usize> {
        let tensors = &job.train.as_ref().unwrap().program.tensors;
        (0..tensors.len()).filter(|&id| tensors[id].class == Class::Average).collect()
    };
    let program = &turned.train.as_ref().unwrap().program;
    let are_turned = averages(&turned).into_iter().filter(|&id| program.tensors[id].is_turned()).count();
    let weights = program.tensors.iter().filter(|tensor| tensor.class == Class::Parameter && tensor.is_turned());
    assert!(are_turned > 0 && are_turned == weights.count(), "{are_turned}");
    let mut card = load(&turned);
    let mut cpu = Cpu::with_threads(1).unwrap().load(plain.clone()).unwrap();
    begin(&plain, &mut card);
    begin(&plain, &mut cpu);
    for step in 0..4 {
        feed(&plain, &mut card, step);
        card.train().unwrap();
        feed(&plain, &mut cpu, step);
        cpu.train().unwrap();
    }
    let placed = plain.train.as_ref().unwrap();
    for id in averages(&plain) {
        let read = |runner: &mut dyn Runner| {
            let mut bytes = vec![0; placed.bytes[id] as usize];
            runner.read(placed.offsets[id], &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<f32>>()
        };
        host::harness::assert_close(&placed.program.tensors[id].name, &read(&mut card), &read(&mut cpu), 1e-4);
    }
}
