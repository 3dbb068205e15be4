//! Values that are looked up by indices, in networks as they are written: tokens in parts, places of the largest elements, sums by indices.
#![deny(warnings, missing_docs)]

use gpumem::Cpu;
use gpumem::prelude::*;

network! {
    /// A router that chooses two of four experts for each of three tokens.
    struct Router;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.5 }, loss: Mse, cards: [RTX_3060] };

    fn forward(scores: Sequence<3, 4>, experts: Sequence<3, 4>) -> Features<3> {
        [
            Linear(4, bias = false, name = "router"), tap(routed),
            Mul(Gather(from(experts), [from(routed), TopK(2, indices)], dim = -1), [TopK(2, dim = -1), Softmax(-1)]),
            Sum(-1),
        ]
    }
}

#[test]
fn a_router_chooses_experts() {
    let mut net = Router::on(&Cpu::with_threads(1).unwrap()).unwrap();
    // With the identity as its map, it chooses by the scores themselves.
    let identity: Vec<f32> = (0..16u8).map(|at| f32::from(u8::from(at % 5 == 0))).collect();
    net.set("router.weight", &identity).unwrap();
    let scores = [[0.0, 1.0, 2.0, -1.0], [3.0, 0.0, 0.0, 0.0], [-1.0, -1.0, -3.0, -2.0]];
    let experts = [[10.0, 20.0, 30.0, 40.0], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]];
    let twice = |rows: [[f32; 4]; 3]| Tensor::from_vec([rows, rows].concat().concat()).unwrap();
    let (scores, experts) = (twice(scores), twice(experts));
    let found = net.forward((&scores, &experts)).unwrap();
    let weight = |difference: f32| 1.0 / (1.0 + (-difference).exp());
    // Of equal scores the first comes first.
    let expected = [
        weight(1.0) * 30.0 + weight(-1.0) * 20.0,
        weight(3.0) * 1.0 + weight(-3.0) * 2.0,
        weight(0.0) * 5.0 + weight(0.0) * 6.0,
    ];
    for (found, expected) in found.as_slice().iter().zip(expected.iter().cycle()) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
    // It learns through the weights of what it chose.
    let target = Tensor::from_vec(vec![20.0; 6]).unwrap();
    let losses: Vec<f32> = (0..2).map(|_| net.train_step((&scores, &experts), &target).unwrap()).collect();
    assert!(losses[1] < losses[0], "{losses:?}");
    assert_ne!(net.get("router.weight").unwrap(), identity);
}

network! {
    /// Columns of categories, each with a table of its own, and numbers that indices choose.
    struct Columns;

    const TRAIN: Train = Train { batch: 4, micro_batches: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(ids: Tokens<6>, x: Sequence<5, 2>) -> Features<2> {
        [
            Add(
                [Slice(0, 1), Embedding(3, 2, name = "first"), Flatten],
                [Slice(1, 2), Embedding(7, 2, name = "second"), Flatten],
                [Gather(from(x), [from(ids), Slice(2), Reshape(2, 2), Transpose(1, 2)]), Sum(1)],
            ),
        ]
    }
}

/// Each column has the limit of what reads it, whatever part of the batch a mistake is in.
#[test]
fn columns_have_limits_of_their_own() {
    let mut net = Columns::on(&Cpu::with_threads(1).unwrap()).unwrap();
    let x = Tensor::from_fn(|index| index as f32);
    let target = Tensor::from_vec(vec![0.0; 8]).unwrap();
    let sound: Vec<u32> = [[2, 6, 0, 4, 1, 1], [0, 0, 4, 3, 2, 0], [1, 5, 3, 3, 3, 3], [2, 1, 0, 0, 0, 4]].concat();
    let mut step = |ids: Vec<u32>| net.train_step((&Tensor::from_vec(ids).unwrap(), &x), &target);
    assert!(step(sound.clone()).unwrap().is_finite());
    for (position, value, what) in [(0, 3, "token"), (13, 7, "token"), (18, 3, "token"), (23, 5, "index")] {
        let mut ids = sound.clone();
        ids[position] = value;
        let said = format!("{what} {value} at position {position} is too large: it must be below {value}");
        assert_eq!(step(ids).unwrap_err().to_string(), said);
    }
    let weights = [("first.weight", 3), ("second.weight", 7)];
    for (name, rows) in weights {
        net.set(name, &vec![0.5; 2 * rows]).unwrap();
    }
    let found = net.forward((&Tensor::from_vec(sound).unwrap(), &x)).unwrap();
    // Tokens [0, 4, 1, 1] as [[0, 1], [4, 1]]: rows 0 and 4 of the first number, twice row 1 of the second.
    assert_eq!(found.as_slice()[..2], [1.0 + 0.0 + 8.0, 1.0 + 3.0 + 3.0]);
}

network! {
    /// Messages along the edges of a graph, added up at the nodes where they end.
    struct Edges;

    const TRAIN: Train = Train { batch: 2, optimizer: Sgd { lr: 0.1 }, loss: Mse };

    fn forward(messages: Sequence<4, 2>, ends: Tokens<4>) -> Sequence<3, 2> {
        [ScatterAdd(Constant(1, shape = (3, 2)), [from(ends), Unsqueeze(-1), Expand(4, 2)], Linear(2, bias = false))]
    }
}

/// Sums at nodes, and a node that is not there.
#[test]
fn messages_are_added_up_where_edges_end() {
    let mut net = Edges::on(&Cpu::with_threads(1).unwrap()).unwrap();
    net.set("linear.weight", &[1.0, 0.0, 0.0, -1.0]).unwrap();
    let messages = Tensor::from_fn(|index| index as f32);
    let mut ends = vec![2, 0, 2, 2, 1, 1, 0, 0];
    let sums = net.forward((&messages, &Tensor::from_vec(ends.clone()).unwrap())).unwrap();
    let expected = [3.0, -2.0, 1.0, 1.0, 11.0, -12.0, 27.0, -27.0, 19.0, -19.0, 1.0, 1.0];
    // Messages [0, 1], [2, 3], [4, 5], [6, 7] of the first sample, and from [8, 9] on of the second.
    assert_eq!(sums.as_slice(), expected);
    ends[5] = 3;
    let refused = net.forward((&messages, &Tensor::from_vec(ends).unwrap())).unwrap_err();
    assert_eq!(refused.to_string(), "index 3 at position 5 is too large: it must be below 3");
}

network! {
    /// A decoder in which each token chooses two of four numbers, and a row of a table.
    struct Routed;

    const INFER: Infer = Infer { batch: 1, cache: 9, chunk: 4 };

    fn forward(tokens: Tokens<9>) -> TokenLogits<9, 6> {
        [
            Embedding(6, 8), CausalSelfAttention(2), tap(x), Linear(4), tap(scores),
            Mul(
                Gather([from(x), Linear(4)], [from(scores), TopK(2, indices)], dim = -1),
                [from(scores), TopK(2), Softmax(-1)],
            ),
            Add([], [from(scores), ArgMax(-1), Embedding(4, 2)]), tap(chosen),
            ScatterAdd(from(scores), [from(scores), TopK(2, indices)], from(chosen), dim = -1),
            Linear(6),
        ]
    }
}

/// A token's choice does not depend on the number of tokens that are computed at a time.
#[test]
fn a_router_goes_on_with_a_cache() {
    let mut net = Routed::on(&Cpu::with_threads(1).unwrap()).unwrap();
    let sequence = [3, 0, 5, 1, 1, 4, 2, 0, 3];
    let together = net.extend(&[&sequence]).unwrap();
    net.truncate(0).unwrap();
    let steps: Vec<Vec<f32>> = sequence.iter().map(|token| net.extend(&[&[*token]]).unwrap()).collect();
    assert_eq!(steps.last(), Some(&together));
    assert!(steps.iter().flatten().all(|logit| logit.is_finite()) && steps[0] != steps[8]);
}
