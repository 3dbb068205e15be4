//! What cuDNN itself says of recurrent layers: the memory that it takes for them, and where it has their weights.

use gpumem_core::program::op::{Rule, Work};
use gpumem_core::program::ops::{Cell, WholeRecurrence};
use gpumem_cuda::product::{Element, Scratch};
use gpumem_cuda::recurrence::{Each, Pass};
use gpumem_cuda::{Recurrence, absent_pieces, absent_sizes};
use std::collections::BTreeMap;

const CELLS: [Cell; 4] = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];
const ELEMENTS: [Element; 3] = [Element::F32, Element::Bf16, Element::F16];

/// Samples and steps: products that are no multiples of anything, and those of networks.
const ROWS: [(u64, u64); 8] = [(1, 1), (1, 700), (3, 7), (20, 35), (64, 128), (257, 2), (500, 1), (2, 257)];

/// Numbers that arrive, and units.
const WIDTHS: [(u64, u64); 9] =
    [(1, 1), (1, 513), (2, 9), (300, 77), (77, 300), (650, 650), (800, 512), (1024, 512), (512, 1024)];

/// A layer in any memory.
fn layer(op: &WholeRecurrence, batch: u64, element: Element) -> Recurrence {
    let none = Scratch { tensor: 0, bytes: 0 };
    let bias = op.bias.then_some(0);
    let of_direction = [Some(0), Some(0), bias, bias, (op.outputs < op.hidden).then_some(0)];
    let weights: Each<u32> = [of_direction, if op.directions == 2 { of_direction } else { [None; 5] }];
    Recurrence {
        pass: Pass::Forward,
        cell: op.cell,
        batch,
        steps: op.steps,
        in_features: op.in_features,
        hidden: op.hidden,
        outputs: op.outputs,
        directions: op.directions,
        x: 0,
        y: 0,
        weights,
        reserve: none,
        workspace: none,
        element,
        tf32: false,
    }
}

/// Each layer of the sizes above: of either way, with biases and without, and of LSTMs with projections that are wide, narrow and 1.
fn layers(rows: &[(u64, u64)], mut check: impl FnMut(&WholeRecurrence, u64, Element)) {
    for cell in CELLS {
        for (in_features, hidden) in WIDTHS {
            let narrow = [hidden, hidden - hidden / 4, hidden.div_ceil(3), 1];
            let mut narrow = narrow[..if cell == Cell::Lstm { 4 } else { 1 }].to_vec();
            narrow.dedup();
            for (outputs, directions) in narrow.into_iter().flat_map(|outputs| [(outputs, 1), (outputs, 2)]) {
                for (&(batch, steps), bias) in rows.iter().flat_map(|rows| [(rows, true), (rows, false)]) {
                    let op = WholeRecurrence { cell, steps, in_features, hidden, outputs, directions, bias };
                    ELEMENTS.into_iter().for_each(|element| check(&op, batch, element));
                }
            }
        }
    }
}

/// Bytes that a plan has for a layer: of the reserve, and of the workspace where cuDNN's begins.
fn planned_for(op: &WholeRecurrence, batch: u64, element: Element) -> [u64; 2] {
    let reserve = batch * op.reserve() * element.bytes();
    let workspace = |work| batch * op.workspace(work).unwrap().shape.elements().unwrap() + op.workspace_once(work);
    let backward = Pass::Backward { dy: 0, dx: None, sums: [[None; 5]; 2] };
    let rest = |pass| Recurrence { pass, ..layer(op, batch, element) }.parts().rest;
    let passes = [(Work::Training, Pass::Forward), (Work::Gradient(0), backward)];
    let least = passes.map(|(work, pass)| workspace(work) * element.bytes() - rest(pass)).into_iter().min();
    [reserve, least.unwrap()]
}

/// What is planned is what cuDNN asks for, or a little more.
#[test]
#[ignore = "needs libcudnn: scripts/cudnn-check"]
fn recurrent_layers_have_the_memory_that_cudnn_asks_for() {
    let mut count = 0;
    layers(&ROWS, |op, batch, element| {
        let asked = layer(op, batch, element);
        let [workspace, reserve, weights] = absent_sizes(&asked).unwrap();
        let [planned_reserve, planned_workspace] = planned_for(op, batch, element);
        assert!(workspace > 0 && reserve > 0, "{asked}");
        assert_eq!(weights, asked.weight_bytes(), "{asked}");
        assert!(reserve <= planned_reserve, "{asked}: {reserve}, {planned_reserve}");
        assert!(workspace <= planned_workspace, "{asked}: {workspace}, {planned_workspace}");
        // 512 bytes a sample, which one sample needs.
        assert!(planned_reserve - reserve <= batch * 1024, "{asked}: {reserve}, {planned_reserve}");
        // Room for products is planned as if every number had 2 bytes.
        let products = op.directions * (8 << 20) * (element.bytes() / 2 - 1) + 16384 + 64 * batch;
        assert!(planned_workspace - workspace <= products, "{asked}: {workspace}, {planned_workspace}");
        count += 1;
    });
    println!("{count} recurrent layers");
    assert!(count > 4000);
}

/// All weights are in one piece without gaps, each number of each of them once.
#[test]
#[ignore = "needs libcudnn: scripts/cudnn-check"]
fn recurrent_layers_have_their_weights_where_cudnn_looks_for_them() {
    layers(&ROWS[2..3], |op, batch, element| {
        let asked = layer(op, batch, element);
        let mut pieces = absent_pieces(&asked).unwrap();
        pieces.sort_by_key(|&[.., packed, _]| packed);
        let end = pieces.iter().fold(0, |end, &[.., packed, bytes]| {
            assert_eq!(packed, end, "{asked}: {pieces:?}");
            packed + bytes
        });
        assert_eq!(end, asked.weight_bytes(), "{asked}");
        let mut sizes: BTreeMap<[u64; 2], u64> = BTreeMap::new();
        for [direction, of, _, _, bytes] in pieces {
            *sizes.entry([direction, of]).or_default() += bytes;
        }
        let [of_map, of_steps, of_bias] = asked.gate_bytes();
        let gates = op.cell.gates();
        let all = [gates * of_map, gates * of_steps, gates * of_bias, gates * of_bias, of_steps];
        let there = (0..2).flat_map(|direction| (0..5).map(move |of| [direction, of]));
        let expected = there.filter(|&[direction, of]| asked.weights[direction][of].is_some());
        let expected = expected.map(|[direction, of]| ([direction as u64, of as u64], all[of])).collect();
        assert_eq!(sizes, expected, "{asked}");
    });
}
