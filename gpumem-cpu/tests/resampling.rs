//! Maps of other sizes and padding: the examples of PyTorch's documentation and tests, and random sizes against plain loops in double
//! precision that follow ATen, outputs and gradients.

mod common;

use common::{Input, OneLayer, Options, assert_close};
use proptest::prelude::*;

/// What a layer computes of a map of one channel.
fn output(text: &str, [height, width]: [u64; 2], values: &[f32]) -> Vec<f32> {
    let map = [Input::Numbers(vec![1, height, width])];
    let mut net = OneLayer::new(text, &map, Options { batch: 1, ..Options::default() });
    net.set(net.inputs[0], values);
    net.run().unwrap();
    net.get(net.output)
}

/// Numbers from 0 on.
fn counted(count: usize) -> Vec<f32> {
    (0..count).map(|index| index as f32).collect()
}

/// The examples of `torch.nn.Upsample`, and ATen's test of cubic interpolation.
#[test]
fn examples_of_interpolation() {
    let square = [1.0, 2.0, 3.0, 4.0];
    let check = |text: &str, sizes, values: &[f32], expected: &[f64], tolerance| {
        assert_close(&output(text, sizes, values), expected, tolerance);
    };
    check(
        "Upsample(2, mode = \"bilinear\")",
        [2, 2],
        &square,
        &[1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75, 4.0],
        1e-6,
    );
    let third = 1.0 / 3.0;
    let aligned: Vec<f64> = (0..16).map(|i| 1.0 + third * f64::from(i % 4) + 2.0 * third * f64::from(i / 4)).collect();
    check("Upsample(2, mode = \"bilinear\", align_corners = true)", [2, 2], &square, &aligned, 1e-6);
    let corner = [1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0];
    #[rustfmt::skip]
    let expected = [
        1.0, 1.25, 1.75, 1.5, 0.5, 0.0,
        1.5, 1.75, 2.25, 1.875, 0.625, 0.0,
        2.5, 2.75, 3.25, 2.625, 0.875, 0.0,
        2.25, 2.4375, 2.8125, 2.25, 0.75, 0.0,
        0.75, 0.8125, 0.9375, 0.75, 0.25, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    ];
    check("Upsample(2, mode = \"bilinear\")", [3, 3], &corner, &expected, 1e-6);
    #[rustfmt::skip]
    let cubic = [
        -0.31641, 0.01562, 0.56250, 0.89453,
        0.34766, 0.67969, 1.22656, 1.55859,
        1.44141, 1.77344, 2.32031, 2.65234,
        2.10547, 2.43750, 2.98438, 3.31641,
    ];
    check("Upsample(2, mode = \"bicubic\")", [2, 2], &counted(4), &cubic, 1e-5);
    // OpenCV's nearest elements.
    let nearest = [0.0, 1.0, 3.0, 5.0, 7.0, 9.0, 10.0, 12.0, 14.0, 16.0, 18.0];
    check("Upsample(size = [1; 11])", [1, 20], &counted(20), &nearest, 0.0);
}

/// The examples of `ReflectionPad2d`, `ReplicationPad2d`, `CircularPad2d`, `ZeroPad2d` and `ConstantPad2d`.
#[test]
fn examples_of_padding() {
    let check = |text: &str, expected: &[f32]| assert_eq!(output(text, [3, 3], &counted(9)), expected, "{text}");
    #[rustfmt::skip]
    let reflect = [
        7.0, 6.0, 7.0, 8.0, 7.0,
        4.0, 3.0, 4.0, 5.0, 4.0,
        1.0, 0.0, 1.0, 2.0, 1.0,
        4.0, 3.0, 4.0, 5.0, 4.0,
        7.0, 6.0, 7.0, 8.0, 7.0,
    ];
    check("Pad([1; 1; 2; 0], mode = \"reflect\")", &reflect);
    #[rustfmt::skip]
    let replicate = [
        0.0, 0.0, 1.0, 2.0, 2.0,
        0.0, 0.0, 1.0, 2.0, 2.0,
        0.0, 0.0, 1.0, 2.0, 2.0,
        3.0, 3.0, 4.0, 5.0, 5.0,
        6.0, 6.0, 7.0, 8.0, 8.0,
    ];
    check("Pad([1; 1; 2; 0], mode = \"replicate\")", &replicate);
    #[rustfmt::skip]
    let circular = [
        5.0, 3.0, 4.0, 5.0, 3.0,
        8.0, 6.0, 7.0, 8.0, 6.0,
        2.0, 0.0, 1.0, 2.0, 0.0,
        5.0, 3.0, 4.0, 5.0, 3.0,
        8.0, 6.0, 7.0, 8.0, 6.0,
    ];
    check("Pad([1; 1; 2; 0], mode = \"circular\")", &circular);
    check("Pad([0; 1; -2; 0], value = 3.5)", &[6.0, 7.0, 8.0, 3.5]);
    check("Pad([-1; -1; 0; 0])", &[1.0, 4.0, 7.0]);
}

/// Elements of an axis that an element of the output is a sum of, with their weights.
type Reads = Vec<(usize, f64)>;

/// `area_pixel_compute_source_index` and what follows it for each mode, for element `o` of an axis.
fn reads(mode: &str, align_corners: bool, [input, output]: [usize; 2], factor: Option<f64>, o: usize) -> Reads {
    let step = match factor {
        _ if align_corners && output == 1 => 0.0,
        _ if align_corners => (input - 1) as f64 / (output - 1) as f64,
        Some(factor) => 1.0 / factor,
        None => input as f64 / output as f64,
    };
    let place = if align_corners { step * o as f64 } else { step * (o as f64 + 0.5) - 0.5 };
    let inside = |at: f64| at.clamp(0.0, (input - 1) as f64) as usize;
    match mode {
        "nearest" if input == output => vec![(o, 1.0)],
        "nearest" if 2 * input == output => vec![(o / 2, 1.0)],
        "nearest" => vec![(((o as f32 * step as f32).floor() as usize).min(input - 1), 1.0)],
        "nearest-exact" => vec![((((o as f32 + 0.5) * step as f32).floor() as usize).min(input - 1), 1.0)],
        "bilinear" if input == output => vec![(o, 1.0)],
        "bilinear" => {
            let place = place.max(0.0);
            let rest = place - place.floor();
            vec![(inside(place.floor()), 1.0 - rest), (inside(place.floor() + 1.0), rest)]
        }
        _ => (-1..3)
            .map(|next| {
                let at = place.floor() + f64::from(next);
                let distance = (place - at).abs();
                let (squared, cubed) = (distance.powi(2), distance.powi(3));
                let weight = if distance <= 1.0 {
                    1.25 * cubed - 2.25 * squared + 1.0
                } else {
                    -0.75 * (cubed - 5.0 * squared + 8.0 * distance - 4.0)
                };
                (inside(at), weight)
            })
            .collect(),
    }
}

/// The padding of `F.pad`: which element stands at place `o`, counted from the first one of the input.
fn stands(mode: &str, o: i64, size: i64) -> Reads {
    let place = match mode {
        "reflect" => {
            let period = (2 * (size - 1)).max(1);
            let o = o.rem_euclid(period);
            o.min(period - o)
        }
        "replicate" => o.clamp(0, size - 1),
        "circular" => o.rem_euclid(size),
        _ => o,
    };
    if (0..size).contains(&place) { vec![(place as usize, 1.0)] } else { Vec::new() }
}

/// A layer on two samples of two channels, whose output has these rows and columns, and `value` where one reads nothing.
fn compare(text: &str, [height, width]: [usize; 2], [rows, columns]: [&[Reads]; 2], value: f64) {
    let map = [Input::Numbers(vec![2, height as u64, width as u64])];
    let mut net = OneLayer::new(text, &map, Options::default());
    net.run().unwrap();
    let [x, dy] = [net.inputs[0], net.target].map(|id| net.get(id));
    let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
    assert_eq!(y.len(), x.len() / height / width * rows.len() * columns.len(), "{text}");
    for (index, y) in y.iter_mut().enumerate() {
        let (o, p) = (index / columns.len(), index % columns.len());
        let plane = o / rows.len() * height * width;
        let (row, column) = (&rows[o % rows.len()], &columns[p]);
        if row.is_empty() || column.is_empty() {
            *y = value;
        }
        for ((h, a), (w, b)) in row.iter().flat_map(|row| column.iter().map(move |column| (row, column))) {
            let place = plane + h * width + w;
            *y += a * b * f64::from(x[place]);
            dx[place] += a * b * f64::from(dy[index]);
        }
    }
    assert_close(&net.get(net.output), &y, 1e-5);
    assert_close(&net.get(net.gradients[0].1), &dx, 1e-5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn interpolation(
        size in (1usize..12, 1usize..12),
        other in (1usize..16, 1usize..16),
        factors in (1usize..60, 1usize..60),
        mode in 0usize..6,
        by_factor: bool,
    ) {
        let (mode, align_corners) =
            [("nearest", false), ("bilinear", false), ("bilinear", true), ("bicubic", false), ("bicubic", true), ("nearest-exact", false)][mode];
        let (input, factors) = ([size.0, size.1], [factors.0, factors.1].map(|factor| factor as f64 / 20.0));
        let output = if by_factor {
            [0, 1].map(|axis| (input[axis] as f64 * factors[axis]) as usize)
        } else {
            [other.0, other.1]
        };
        prop_assume!(!output.contains(&0));
        let axis = |axis: usize| -> Vec<Reads> {
            let factor = by_factor.then_some(factors[axis]);
            (0..output[axis]).map(|o| reads(mode, align_corners, [input[axis], output[axis]], factor, o)).collect()
        };
        let given = if by_factor {
            format!("[{}; {}]", factors[0], factors[1])
        } else {
            format!("size = [{}; {}]", output[0], output[1])
        };
        let text = format!("Upsample({given}, mode = \"{mode}\", align_corners = {align_corners})");
        compare(&text, input, [&axis(0), &axis(1)], 0.0);
    }

    #[test]
    fn padding(size in (1i64..9, 1i64..9), sides in [0i64..9, 0..9, 0..9, 0..9], mode in 0usize..4, cuts: bool) {
        let mode = ["constant", "reflect", "replicate", "circular"][mode];
        let sizes = [size.0, size.1];
        let cuts = if mode == "constant" && cuts { 4 } else { 0 };
        let axis = |axis: usize| {
            let most = match mode {
                "reflect" => sizes[axis] - 1,
                "circular" => sizes[axis],
                _ => 8,
            };
            [0, 1].map(|side| sides[2 * axis + side].min(most) - cuts)
        };
        let [[top, bottom], [left, right]] = [axis(0), axis(1)];
        prop_assume!(sizes[0] + top + bottom > 0 && sizes[1] + left + right > 0);
        let stand = |size: i64, [front, end]: [i64; 2]| -> Vec<Reads> {
            (-front..size + end).map(|o| stands(mode, o, size)).collect()
        };
        let value = if mode == "constant" { 0.75 } else { 0.0 };
        let text = format!("Pad([{left}; {right}; {top}; {bottom}], mode = \"{mode}\", value = {value})");
        let [rows, columns] = [stand(sizes[0], [top, bottom]), stand(sizes[1], [left, right])];
        compare(&text, sizes.map(|size| size as usize), [&rows, &columns], value);
    }
}
