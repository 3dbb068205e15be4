//! What changes shapes puts every element where PyTorch does, for values of up to six axes.
#![deny(warnings, missing_docs)]

use gpumem::Cpu;
use gpumem::prelude::*;

const BATCH: usize = 2;

network! {
    /// A normalisation of all channels, whose last axis has length 1.
    struct One;

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(x: Values<4, 1>) -> Features<4> { [GroupNorm(1), Flatten] }
}

network! {
    /// A window that is larger than the map.
    struct Beyond;

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(x: Values<1, 2, 2>) -> Map<1, 1, 1> { MaxPool2d(3, 2, ceil_mode) }
}

#[test]
fn the_only_window_reaches_over_the_end() {
    let mut net = Beyond::on(&Cpu::new()).unwrap();
    let input = <Beyond as Network>::Input::from_vec(vec![0.0, 2.0, 4.0, -1.0, -5.0, -4.0, -3.0, -7.0]).unwrap();
    assert_eq!(net.infer(&input).unwrap().as_slice(), [4.0, -3.0]);
}

#[test]
fn a_group_of_all_channels_is_no_last_axis() {
    let mut net = One::on(&Cpu::new()).unwrap();
    let input = <One as Network>::Input::from_vec(vec![0.0, 2.0, 0.0, 2.0, 5.0, 5.0, 3.0, 3.0]).unwrap();
    let found = net.infer(&input).unwrap();
    for (found, expected) in found.as_slice().iter().zip([-1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0]) {
        assert!((found - expected).abs() < 1e-4, "{found}");
    }
}

network! {
    /// Channels, rows and columns in other places.
    struct Moved;

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(x: Values<8, 2, 3>) -> (Map<2, 4, 6>, Map<8, 2, 3>, Map<8, 2, 3>, Map<8, 2, 3>, Features<48>, Map<8, 4, 3>) {
        [Outputs(
            PixelShuffle(2),
            [PixelShuffle(2), PixelUnshuffle(2)],
            ChannelShuffle(4),
            Roll((1, -1), (2, 3)),
            // Windows of one row and three columns, as a Swin Transformer cuts them.
            [Reshape(2, 2, 2, 2, 1, 3), Permute(0, 4, 6, 2, 1, 5, 3), Squeeze(5), Unsqueeze(1), Flatten],
            Concat([], Roll(3, 1), dim = 2),
        )]
    }
}

/// The elements of each sample, where `from` says for each of `length` elements which of a sample's 48 it is.
fn expected(length: usize, from: impl Fn(usize) -> usize) -> Vec<f32> {
    (0..BATCH).flat_map(|sample| (0..length).map(|at| (48 * sample + from(at)) as f32).collect::<Vec<_>>()).collect()
}

/// The position of an element along each axis.
fn position<const RANK: usize>(mut at: usize, shape: [usize; RANK]) -> [usize; RANK] {
    let mut position = [0; RANK];
    for axis in (0..RANK).rev() {
        position[axis] = at % shape[axis];
        at /= shape[axis];
    }
    position
}

#[test]
fn elements_move_as_in_pytorch() {
    let mut net = Moved::on(&Cpu::new()).unwrap();
    let elements: Vec<f32> = (0..48 * BATCH).map(|number| number as f32).collect();
    let input = <Moved as Network>::Input::from_vec(elements.clone()).unwrap();
    let (shuffled, back, channels, rolled, windows, joined) = net.infer(&input).unwrap();
    let map = |channel: usize, row: usize, column: usize| (channel * 2 + row) * 3 + column;
    let shuffle = expected(48, |at| {
        let [channel, row, column] = position(at, [2, 4, 6]);
        map(channel * 4 + row % 2 * 2 + column % 2, row / 2, column / 2)
    });
    assert_eq!(shuffled.as_slice(), shuffle);
    assert_eq!(back.as_slice(), elements);
    let groups = expected(48, |at| {
        let [channel, row, column] = position(at, [8, 2, 3]);
        map(channel % 4 * 2 + channel / 4, row, column)
    });
    assert_eq!(channels.as_slice(), groups);
    let moved = expected(48, |at| {
        let [channel, row, column] = position(at, [8, 2, 3]);
        map(channel, (row + 1) % 2, (column + 1) % 3)
    });
    assert_eq!(rolled.as_slice(), moved);
    let order = expected(48, |at| {
        // Axes 4, 6, 2, 1, 5 and 3 of what was [2, 2, 2, 2, 1, 3].
        let [fourth, sixth, second, first, _, third] = position(at, [2, 3, 2, 2, 1, 2]);
        (((first * 2 + second) * 2 + third) * 2 + fourth) * 3 + sixth
    });
    assert_eq!(windows.as_slice(), order);
    let both = expected(96, |at| {
        let [channel, row, column] = position(at, [8, 4, 3]);
        if row < 2 { map(channel, row, column) } else { map((channel + 5) % 8, row - 2, column) }
    });
    assert_eq!(joined.as_slice(), both);
}

network! {
    /// Repeated along axes of five and six.
    struct Repeated;

    const INFER: Infer = Infer { batch: BATCH };

    fn forward(a: Values<2, 1, 3, 1, 2>, b: Values<2, 1, 2, 1, 2, 1>) -> Features<96> {
        [Add(from(a), from(b)), Flatten]
    }
}

#[test]
fn values_of_six_axes_are_repeated_along_them() {
    let mut net = Repeated::on(&Cpu::new()).unwrap();
    let (a, b): (Vec<f32>, Vec<f32>) =
        ((0..12 * BATCH).map(|x| x as f32).collect(), (0..8 * BATCH).map(|x| 100.0 * x as f32).collect());
    let y = net.infer((&Tensor::from_vec(a).unwrap(), &Tensor::from_vec(b).unwrap())).unwrap();
    let at = |at: usize| {
        // Of [2, 2, 2, 3, 2, 2] = [2, 1, 2, 1, 2, 1] with [1, 2, 1, 3, 1, 2].
        let [sample, i, j, k, l, m, n] = position(at, [BATCH, 2, 2, 2, 3, 2, 2]);
        (12 * sample + (j * 3 + l) * 2 + n) as f32 + 100.0 * (8 * sample + (i * 2 + k) * 2 + m) as f32
    };
    let expected: Vec<f32> = (0..96 * BATCH).map(at).collect();
    assert_eq!(y.as_slice(), expected);
}

network! {
    /// A head of four elements at many positions.
    struct Positions;

    const INFER: Infer = Infer { batch: 1 };

    fn forward(x: Sequence<131072, 8>) -> Sequence<131072, 8> { [Rotary(2)] }
}

/// A table of angles in f32 is off by 0.004 at the last of these positions.
#[test]
fn rotary_positions_are_exact() {
    let mut net = Positions::on(&Cpu::new()).unwrap();
    let x = |at: usize| ((at * 37 % 101) as f32 - 50.0) / 50.0;
    let y = net.infer(&Tensor::from_fn(x)).unwrap();
    for (position, row) in y.as_slice().chunks_exact(8).enumerate() {
        for (at, &found) in row.iter().enumerate() {
            let (head, element) = (at / 4 * 4, at % 4);
            // Pairs are two elements apart, and the second one turns a hundredth as fast.
            let angle = position as f64 * [1.0, 0.01][element % 2];
            let [a, b] = [0, 2].map(|half| f64::from(x(position * 8 + head + half + element % 2)));
            let expected =
                if element < 2 { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() };
            assert!((f64::from(found) - expected).abs() < 3e-7, "{position}, {at}: {found} and {expected}");
        }
    }
}

network! {
    /// Heads of six elements, of which the first four turn as two pairs of neighbours.
    struct Neighbours;

    const INFER: Infer = Infer { batch: 2 };

    fn forward(x: Sequence<300, 12>) -> Sequence<300, 12> { [Rotary(2, base = 100.0, dims = 4, interleaved = true)] }
}

#[test]
fn rotary_positions_of_neighbours_turn_a_part_of_each_head() {
    let mut net = Neighbours::on(&Cpu::new()).unwrap();
    let x = |at: usize| ((at * 29 % 97) as f32 - 48.0) / 48.0;
    let y = net.infer(&Tensor::from_fn(x)).unwrap();
    for (row, values) in y.as_slice().chunks_exact(12).enumerate() {
        for (at, &found) in values.iter().enumerate() {
            let (element, first) = (at % 6, row * 12 + at - at % 6);
            // 100^(-2 i / 4) of pair i.
            let angle = (row % 300) as f64 * [1.0, 0.1][element / 2 % 2];
            let [a, b] = [0, 1].map(|of| f64::from(x(first + element / 2 * 2 + of)));
            let expected = match element {
                4 | 5 => f64::from(x(first + element)),
                0 | 2 => a * angle.cos() - b * angle.sin(),
                _ => b * angle.cos() + a * angle.sin(),
            };
            assert!((f64::from(found) - expected).abs() < 3e-7, "{row}, {at}: {found} and {expected}");
        }
    }
}
