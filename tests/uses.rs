//! Uses of one layer of which some are frozen, and values that are detached: a step is that of a network in which what is frozen there is a
//! layer of its own with equal numbers.

use gpumem::prelude::*;
use gpumem::{Cpu, Kind, Line};

/// A network of sequences by plain gradient descent, so that a parameter moves by its gradient.
macro_rules! network_of {
    ($name:ident, { $($settings:tt)* }, $($body:tt)*) => {
        network! {
            pub struct $name;

            const TRAIN: Train = Train { batch: 4, optimizer: Sgd { lr: 0.5 }, loss: Mse, $($settings)* };

            fn forward(x: Sequence<3, 6>) -> Sequence<3, 6> { $($body)* }
        }
    };
}

/// Numbers around 0 that look random.
fn spread(index: usize, salt: usize) -> f32 {
    ((index * 7919 + salt * 104_729) % 1009) as f32 / 504.5 - 1.0
}

fn numbers<S: gpumem::HostShape>(salt: usize) -> Tensor<f32, S> {
    Tensor::from_fn(|index| spread(index, salt))
}

fn close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= 4e-6 * scale.max(1e-3), "{what}: {found}, expected {expected}");
    }
}

fn parameters<N: Network>(net: &Net<N, Cpu>) -> Vec<String> {
    let all = net.tensors().filter(|tensor| tensor.kind == Kind::Parameter);
    all.map(|tensor| tensor.name.to_string()).collect()
}

/// A name without the number of the first use, which a layer has that has several.
fn plain(name: &str) -> String {
    name.replace("[0]", "")
}

/// The name in this network of the parameter that is called so where its layer has one use.
fn called<N: Network>(net: &Net<N, Cpu>, name: &str) -> String {
    parameters(net).into_iter().find(|own| plain(own) == plain(name)).unwrap_or_else(|| panic!("{name} is not there"))
}

/// The parameter of the first network that one of the second begins with: `stays` are those of `w`, `still` those of `v`.
fn origin(name: &str) -> String {
    plain(name).replace("stays", "w").replace("still", "v")
}

/// Compares one step of a network with shared layers and of one in which each frozen use is a layer of its own. Trained parameters move
/// alike.
macro_rules! check_as_apart {
    ($shared:ident, $apart:ident) => {{
        let device = Cpu::with_threads(2).unwrap();
        let (mut shared, mut apart) = ($shared::on(&device).unwrap(), $apart::on(&device).unwrap());
        let names = parameters(&shared);
        for (salt, name) in names.iter().enumerate() {
            let count = shared.get(name).unwrap().len();
            let begin: Vec<f32> = (0..count).map(|index| 0.6 * spread(index, salt)).collect();
            shared.set(name, &begin).unwrap();
        }
        for name in parameters(&apart) {
            let begin = shared.get(&called(&shared, &origin(&name))).unwrap();
            apart.set(&name, &begin).unwrap();
        }
        let before: Vec<Vec<f32>> = names.iter().map(|name| shared.get(name).unwrap()).collect();
        let (x, y) = (numbers(50), numbers(51));
        let expected = apart.train_step(&x, &y).unwrap();
        let found = shared.train_step(&x, &y).unwrap();
        close("loss", &[found], &[expected]);
        for (name, before) in names.iter().zip(before) {
            let after = shared.get(name).unwrap();
            let expected = apart.get(&called(&apart, name)).unwrap();
            close(name, &after, &expected);
            let moved = after.iter().zip(&before).map(|(after, before)| (after - before).abs()).fold(0.0, f32::max);
            assert!(moved > 1e-5, "{name} has not moved");
        }
        for name in parameters(&apart).iter().filter(|name| plain(name) != origin(name)) {
            let (kept, moved) = (apart.get(name).unwrap(), called(&shared, &origin(name)));
            assert_ne!(kept, shared.get(&moved).unwrap(), "{name}");
        }
    }};
}

network_of! { Last, {}, let v = Linear(6); let w = Linear(6); [v, w, Tanh, freeze(w)] }
network_of! { LastApart, {}, let v = Linear(6); let w = Linear(6); let stays = freeze(Linear(6)); [v, w, Tanh, stays] }
network_of! { First, {}, let v = Linear(6); let w = Linear(6); [v, freeze(w), Tanh, w] }
network_of! { FirstApart, {}, let v = Linear(6); let w = Linear(6); let stays = Linear(6, freeze); [v, stays, Tanh, w] }
network_of! { Between, {}, let w = Linear(6); [w, Tanh, freeze([w, Tanh]), w] }
network_of! { BetweenApart, {}, let w = Linear(6); let stays = freeze(Linear(6)); [w, Tanh, stays, Tanh, w] }

#[test]
fn a_use_that_is_frozen_has_no_gradient_and_others_have() {
    check_as_apart!(Last, LastApart);
    check_as_apart!(First, FirstApart);
    check_as_apart!(Between, BetweenApart);
}

network_of! { Split, { micro_batches: 2 }, let v = Linear(6); let w = Linear(6); [v, w, Tanh, freeze(w)] }
network_of! { SplitApart, { micro_batches: 2 }, let v = Linear(6); let w = Linear(6); let stays = freeze(Linear(6)); [v, w, Tanh, stays] }
network_of! { Held, { update: Separate }, let v = Linear(6); let w = Linear(6); [v, w, Tanh, freeze(w)] }
network_of! { HeldApart, { update: Separate }, let v = Linear(6); let w = Linear(6); let stays = freeze(Linear(6)); [v, w, Tanh, stays] }
network_of! { Clipped, { clip: GlobalNorm(0.05) }, let v = Linear(6); let w = Linear(6); [v, freeze(w), Tanh, w] }
network_of! { ClippedApart, { clip: GlobalNorm(0.05) }, let v = Linear(6); let w = Linear(6); let stays = freeze(Linear(6)); [v, stays, Tanh, w] }
network_of! { Again, {}, let v = Linear(6); let w = Linear(6); [v, checkpoint([w, Tanh, freeze(w)]), Tanh] }
network_of! { AgainApart, {}, let v = Linear(6); let w = Linear(6); let stays = freeze(Linear(6)); [v, checkpoint([w, Tanh, stays]), Tanh] }

#[test]
fn so_it_is_in_every_kind_of_step() {
    check_as_apart!(Split, SplitApart);
    check_as_apart!(Held, HeldApart);
    check_as_apart!(Clipped, ClippedApart);
    check_as_apart!(Again, AgainApart);
}

network_of! { Normed, {}, let w = Linear(6, weight_norm); [w, Tanh, freeze(w)] }
network_of! { NormedApart, {}, let w = Linear(6, weight_norm); let stays = freeze(Linear(6, weight_norm)); [w, Tanh, stays] }
network_of! { NormedFirst, {}, let w = Linear(6, weight_norm); [freeze(w), Tanh, w, Tanh, freeze(w)] }
network_of! { NormedFirstApart, {},
    let w = Linear(6, weight_norm); let stays = freeze(Linear(6, weight_norm)); [stays, Tanh, w, Tanh, stays]
}

/// A weight that is made of parameters is made once for all uses that are alike, and once for those that are frozen.
#[test]
fn a_reparametrized_weight_moves_by_its_trained_uses() {
    check_as_apart!(Normed, NormedApart);
    check_as_apart!(NormedFirst, NormedFirstApart);
}

network_of! { Bound, {}, let w = Linear(6, bias = false); [freeze(w), Tanh, Tied(w, bias = false)] }
network_of! { BoundApart, {}, let w = Linear(6, bias = false, transposed); let stays = freeze(Linear(6, bias = false)); [stays, Tanh, w] }
network_of! { BoundLast, {}, let w = Linear(6, bias = false); [w, Tanh, freeze(Tied(w, bias = false))] }
network_of! { BoundLastApart, {}, let w = Linear(6, bias = false); let stays = freeze(Linear(6, bias = false, transposed)); [w, Tanh, stays] }
network_of! { BoundNormed, {}, let w = Linear(6, bias = false, weight_norm); [freeze(w), Tanh, Tied(w, bias = false)] }
network_of! { BoundNormedApart, {},
    let w = Linear(6, bias = false, weight_norm);
    let stays = freeze(Linear(6, bias = false, weight_norm));
    [stays, Tanh, Add([detach(w), Affine(0.0)], Tied(w, bias = false))]
}

#[test]
fn a_tied_use_is_a_use_of_its_own() {
    check_as_apart!(Bound, BoundApart);
    check_as_apart!(BoundLast, BoundLastApart);
    check_as_apart!(BoundNormed, BoundNormedApart);
}

network_of! { Steps, {}, let w = Lstm(6); [w, freeze(w)] }
network_of! { StepsApart, {}, let w = Lstm(6); let stays = freeze(Lstm(6)); [w, stays] }
network_of! { Attends, {}, let w = CausalSelfAttention(2); [freeze(w), Tanh, w] }
network_of! { AttendsApart, {}, let w = CausalSelfAttention(2); let stays = freeze(CausalSelfAttention(2)); [stays, Tanh, w] }

#[test]
fn layers_of_several_weights_are_frozen_as_a_whole() {
    check_as_apart!(Steps, StepsApart);
    check_as_apart!(Attends, AttendsApart);
}

network_of! { Detached, {}, let v = Linear(6); let w = Linear(6); [v, Mul([w, Tanh], [detach(w), Sigmoid])] }
network_of! { Stopped, {}, let v = Linear(6); let w = Linear(6); [v, Mul([w, Tanh], [w, detach, Sigmoid])] }
network_of! { DetachedApart, {},
    let v = Linear(6); let w = Linear(6); let still = freeze(Linear(6)); let stays = freeze(Linear(6));
    [Mul([v, w, Tanh], [still, stays, Sigmoid])]
}

/// Layers before a `detach` act as frozen copies of themselves, whose parameters are equal.
#[test]
fn nothing_flows_back_through_detach() {
    check_as_apart!(Detached, DetachedApart);
    check_as_apart!(Stopped, DetachedApart);
}

network_of! { Chunked, {}, let w = Linear(6); [w, Tanh, freeze(w)] }

network! {
    /// Logits in parts of the steps, of a head that is a frozen use of the layer before.
    pub struct Logits;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.5 }, loss: CrossEntropy { chunks: 2 } };

    fn forward(x: Sequence<4, 6>) -> TokenLogits<4, 6> { let w = Linear(6); [w, Tanh, freeze(w)] }
}

network! {
    pub struct LogitsApart;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.5 }, loss: CrossEntropy };

    fn forward(x: Sequence<4, 6>) -> TokenLogits<4, 6> {
        let w = Linear(6);
        let stays = freeze(Linear(6));
        [w, Tanh, stays]
    }
}

#[test]
fn a_head_in_chunks_may_be_a_frozen_use() {
    let device = Cpu::with_threads(2).unwrap();
    let (mut shared, mut apart) = (Logits::on(&device).unwrap(), LogitsApart::on(&device).unwrap());
    for name in parameters(&apart) {
        let begin = shared.get(&called(&shared, &origin(&name))).unwrap();
        apart.set(&name, &begin).unwrap();
    }
    let (x, labels) = (numbers(7), Tensor::from_fn(|index| index as u32 % 6));
    let expected = apart.train_step(&x, &labels).unwrap();
    close("loss", &[shared.train_step(&x, &labels).unwrap()], &[expected]);
    for name in ["w.weight", "w.bias"] {
        let found = shared.get(&called(&shared, name)).unwrap();
        close(name, &found, &apart.get(name).unwrap());
    }
    let mut whole = Chunked::on(&device).unwrap();
    assert!(whole.train_step(&numbers(8), &numbers(9)).unwrap().is_finite());
}

network_of! { Rounded, {}, let v = Linear(6); [v, Add([], detach(Sub([Hardtanh(-0.2, 0.2)], [])))] }

/// A straight-through estimator: forward a step, backward as if it were not there. With `y` of the step, `dv = x^T 2 (y - t) / n`.
#[test]
fn a_straight_through_estimator() {
    let mut net = Rounded::on(&Cpu::with_threads(2).unwrap()).unwrap();
    let (x, t) = (numbers(3), numbers(4));
    let before = net.get("v.weight").unwrap();
    let y = net.forward(&x).unwrap();
    assert!(y.as_slice().iter().all(|y| y.abs() < 0.2001) && y.as_slice().iter().any(|y| y.abs() > 0.1999));
    net.train_step(&x, &t).unwrap();
    let after = net.get("v.weight").unwrap();
    let errors: Vec<f64> = y.as_slice().iter().zip(t.as_slice()).map(|(y, t)| f64::from(y - t)).collect();
    let expected: Vec<f32> = (0..36)
        .map(|at| {
            let (out, input) = (at / 6, at % 6);
            let of_row = |row: usize| 2.0 * errors[row * 6 + out] * f64::from(x.as_slice()[row * 6 + input]);
            let gradient = (0..12).map(of_row).sum::<f64>() / errors.len() as f64;
            (f64::from(before[at]) - 0.5 * gradient) as f32
        })
        .collect();
    close("v.weight", &after, &expected);
}

network! {
    pub struct Trained;
    const TRAIN: Train = Train { batch: 64, optimizer: Adam { lr: 1e-3 }, loss: Mse };
    fn forward(x: Features<64>) -> Features<4> { [body(), Linear(4, name = "head")] }
    fn body() -> Block { [repeat(4, [Linear(64), Gelu])] }
}

network! {
    pub struct Headed;
    const TRAIN: Train = Train { batch: 64, optimizer: Adam { lr: 1e-3 }, loss: Mse };
    fn forward(x: Features<64>) -> Features<4> { [body(), detach, Linear(4, name = "head")] }
    fn body() -> Block { [repeat(4, [Linear(64), Gelu])] }
}

/// Layers before a `detach` save nothing, and parameters that no gradient reaches have no optimizer state.
#[test]
fn what_is_detached_keeps_nothing() {
    let (trained, headed) = (Trained::TRAINING.unwrap().budget, Headed::TRAINING.unwrap().budget);
    assert_eq!(trained[Line::Optimizer], 2 * 4 * (4 * (64 * 64 + 64) + 64 * 4 + 4));
    assert_eq!(headed[Line::Optimizer], 2 * 4 * (64 * 4 + 4));
    assert!(headed[Line::Activations] * 2 < trained[Line::Activations], "{headed:?} {trained:?}");
    let mut net = Headed::on(&Cpu::new()).unwrap();
    let before = net.get("body.linear[0].weight").unwrap();
    net.train_step(&numbers(1), &numbers(2)).unwrap();
    assert_eq!(net.get("body.linear[0].weight").unwrap(), before);
    assert!(net.tensors().filter(|it| it.kind == Kind::OptimizerState).all(|it| it.name.starts_with("head")));
}
