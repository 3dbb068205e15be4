//! Networks that keep what all steps come to: the states of scans and the last columns of convolutions.

use super::{assert_continued, assert_near, tokens};
use gpumem::prelude::*;
use gpumem::{Cpu, Error, Generated, Line, Serving, blocks, greedy};

blocks! {
    /// Layers of a Mamba, for a width, the width within it, the states of a channel and the width that step sizes are made from.
    mod mamba {
        fn layers(width: usize, inner: usize, states: usize, rank: usize) -> Block {
            Add([], [RmsNorm(eps = 1e-5), mixer(width, inner, states, rank)])
        }

        fn mixer(width: usize, inner: usize, states: usize, rank: usize) -> Block {
            [
                Linear(2 * inner, bias = false),
                Mul(
                    [
                        Slice(0, inner, dim = -1), Transpose(1, 2),
                        Conv1d(inner, 4, padding = 3, groups = inner), Slice(0, -3, dim = -1), Silu, Transpose(1, 2),
                        SelectiveScan(
                            [],
                            [
                                Linear(rank + 2 * states, bias = false), tap(selected),
                                Slice(0, rank, dim = -1), StepSizes(inner),
                            ],
                            [from(selected), Slice(rank, rank + states, dim = -1)],
                            [from(selected), Slice(rank + states, dim = -1)],
                        ),
                    ],
                    [Slice(inner, dim = -1), Silu],
                ),
                Linear(width, bias = false),
            ]
        }
    }
}

network! {
    /// Two samples, some tokens at a time.
    pub struct Narrow;

    use blocks mamba;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: CrossEntropy, seed: 3 };
    const INFER: Infer = Infer { batch: 2, cache: 40, chunk: 6 };

    fn forward(text: Tokens<40>) -> TokenLogits<40, 13> {
        let words = Embedding(13, 20);
        [words, repeat(2, layers(20, 40, 5, 3)), RmsNorm, Tied(words)]
    }
}

network! {
    /// The same in 16 bits.
    pub struct Half;

    use blocks mamba;

    const INFER: Infer = Infer { batch: 2, precision: Bf16, cache: 40 };

    fn forward(text: Tokens<40>) -> TokenLogits<40, 13> {
        [Embedding(13, 20), repeat(2, layers(20, 40, 5, 3)), Linear(13)]
    }
}

network! {
    /// States beside keys and values, with a signal whose windows are wider than a pass, and one that is cut after a function.
    pub struct Hybrid;

    use blocks mamba;

    const TRAIN: Train = Train { batch: 1, loss: CrossEntropy, seed: 8 };
    const INFER: Infer = Infer { batch: 1, cache: 24, chunk: 3 };

    fn forward(text: Tokens<24>) -> TokenLogits<24, 9> {
        [
            Embedding(9, 12), Transpose(1, 2), Conv1d(12, 3, padding = 8, dilation = 4), Tanh, Slice(0, -8, dim = -1),
            Conv1d(12, 1), Transpose(1, 2), Add([], [CausalSelfAttention(2, rotary = 100.0)]), layers(12, 24, 4, 2), Linear(9),
        ]
    }
}

macro_rules! recurrent {
    ($name:ident, $layers:expr) => {
        network! {
            /// A language model of recurrent layers.
            pub struct $name;

            const TRAIN: Train = Train { batch: 2, loss: CrossEntropy, seed: 6 };
            const INFER: Infer = Infer { batch: 2, cache: 12, chunk: 5 };

            fn forward(text: Tokens<12>) -> TokenLogits<12, 9> {
                [Embedding(9, 6), $layers, Linear(9)]
            }
        }
    };
}

recurrent!(LongShort, Lstm(8, layers = 2, dropout = 0.5));
recurrent!(Narrowed, Lstm(8, layers = 2, proj_size = 3));
recurrent!(Gated, Gru(8));
recurrent!(Plain, Rnn(8, nonlinearity = "relu", bias = false));

/// Token by token, in whole chunks, and in chunks that are filled up, again and again from the beginning.
#[test]
fn a_state_space_model() {
    let device = Cpu::with_threads(2).unwrap();
    let mut whole = Narrow::on(&device).unwrap();
    let mut net = Narrow::infer_on(&device).unwrap();
    let samples = [tokens(40, 13, 1), tokens(40, 13, 4)];
    let text = Tensor::from_fn(|index| samples[index / 40][index % 40]);
    let next = Tensor::from_fn(|index| samples[index / 40][(index + 1) % 40]);
    (0..3).for_each(|_| assert!(whole.train_step(&text, &next).unwrap().is_finite()));
    net.copy_from(&mut whole).unwrap();
    let all = whole.forward(&text).unwrap();
    for passes in [vec![1; 40], vec![6; 6], vec![40], vec![5, 7, 1, 1, 2, 8, 16], vec![39, 1]] {
        assert_continued(&mut net, &samples, all.as_slice(), &passes);
    }
    // What `forward` took goes on.
    let first = net.forward(&Tensor::from_fn(|index| samples[index / 6][index % 6])).unwrap();
    let expected = [0, 1].map(|sample| &all.as_slice()[sample * 40 * 13..][..6 * 13]).concat();
    assert_near(first.as_slice(), &expected);
    let logits = net.extend(&[&samples[0][6..8], &samples[1][6..8]]).unwrap();
    let expected = [0, 1].map(|sample| &all.as_slice()[(sample * 40 + 7) * 13..][..13]).concat();
    assert_near(&logits, &expected);
}

#[test]
fn states_beside_keys_and_values() {
    let device = Cpu::new();
    let mut whole = Hybrid::on(&device).unwrap();
    let mut net = Hybrid::infer_on(&device).unwrap();
    net.copy_from(&mut whole).unwrap();
    let sequence = tokens(24, 9, 2);
    let all = whole.forward(&Tensor::from_fn(|index| sequence[index])).unwrap();
    for passes in [vec![1; 24], vec![3; 8], vec![24], vec![2, 7, 1, 10, 4]] {
        assert_continued(&mut net, std::slice::from_ref(&sequence), all.as_slice(), &passes);
    }
    let generated: Vec<Generated> = net.generate(&[&sequence[..4]], greedy).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(generated.len(), 24 - 4 + 1);
    assert_near(&generated[0].logits, &all.as_slice()[3 * 9..][..9]);
}

#[test]
fn recurrent_layers() {
    let samples = [tokens(12, 9, 1), tokens(12, 9, 4)];
    macro_rules! check {
        ($name:ident) => {
            let mut whole = $name::on(&Cpu::new()).unwrap();
            let mut net = $name::infer_on(&Cpu::new()).unwrap();
            net.copy_from(&mut whole).unwrap();
            let all = whole.forward(&Tensor::from_fn(|index| samples[index / 12][index % 12])).unwrap();
            for passes in [vec![1; 12], vec![12], vec![5, 1, 4, 2]] {
                assert_continued(&mut net, &samples, all.as_slice(), &passes);
            }
        };
    }
    check!(LongShort);
    check!(Narrowed);
    check!(Gated);
    check!(Plain);
}

/// States do not go back: that is refused, and changes nothing. A bad token is found before anything is taken.
#[test]
fn states_do_not_go_back() {
    let mut net = Narrow::infer_on(&Cpu::new()).unwrap();
    let samples = [tokens(20, 13, 1), tokens(20, 13, 4)];
    let given = |range: std::ops::Range<usize>| [&samples[0][range.clone()], &samples[1][range]];
    let expected = net.extend(&given(0..20)).unwrap();
    net.truncate(0).unwrap();
    net.extend(&given(0..9)).unwrap();
    let error = net.truncate(4).unwrap_err();
    assert_eq!(error, Error::Rewind { steps: 4, cached: 9 });
    let text = "the network keeps what all 9 steps come to and cannot go back to step 4; begin anew with `truncate(0)` and take the first 4 \
                steps again";
    assert_eq!(error.to_string(), text);
    assert_eq!((net.truncate(9), net.truncate(12), net.cached()), (Ok(()), Ok(()), 9));
    let wrong = [&[1u32; 8][..], &[1, 1, 1, 1, 1, 1, 1, 13]];
    assert_eq!(net.extend(&wrong).unwrap_err(), Error::Index { what: "token", position: 15, value: 13, limit: 13 });
    assert_eq!(net.cached(), 9);
    assert_near(&net.extend(&given(9..20)).unwrap(), &expected);
}

/// They are as large for any number of steps, and in f32 in any format; columns are what activations are.
#[test]
fn states_are_in_the_budget() {
    let elements = |states: u64, columns: u64| 2 * 2 * (40 * 5 * states + 40 * 3 * columns);
    assert_eq!(<Serving<Narrow> as Network>::BUDGET[Line::Cache], elements(4, 4));
    assert_eq!(Half::BUDGET[Line::Cache], elements(4, 2));
    assert_eq!(Narrow::BUDGET[Line::Cache], 0);
    let mut net = Half::on(&Cpu::new().emulate()).unwrap();
    let samples = [tokens(5, 13, 1), tokens(5, 13, 4)];
    assert_eq!(net.extend(&[&samples[0], &samples[1]]).unwrap().len(), 2 * 13);
}
