//! Maps of other sizes, and padding.

use crate::host::harness::graphs::{chain, join, layer, numbers};
use crate::{check, check_narrow};

/// A layer on the network's input.
fn alone(input: &[u64], text: &str) {
    check(text, 2, |graph| {
        let input = graph.input(numbers(input)).unwrap();
        layer(graph, input, text)
    });
}

/// A layer twice on one value, so that the second gradient is added to the first.
fn twice(input: [u64; 3], text: &str) {
    check(&format!("{text} twice"), 2, |graph| {
        let input = graph.input(numbers(&input)).unwrap();
        let x = layer(graph, input, "Sigmoid");
        let branches = [layer(graph, x, text), layer(graph, x, text)];
        join(graph, &branches, "Add")
    });
}

#[test]
fn interpolation() {
    for (mode, align_corners) in [
        ("nearest", false),
        ("nearest-exact", false),
        ("bilinear", false),
        ("bilinear", true),
        ("bicubic", false),
        ("bicubic", true),
    ] {
        // Larger, smaller, both, one element of many, many of one, and the same size by another factor.
        for (input, size) in [
            ([2, 7, 5], "size = [11; 13]"),
            ([2, 13, 11], "size = [6; 4]"),
            ([3, 5, 12], "[2.6; 0.34]"),
            ([2, 9, 7], "size = 1"),
            ([2, 1, 1], "size = [7; 6]"),
            ([2, 1, 3], "[9; 0.4]"),
            ([2, 10, 11], "1.05"),
        ] {
            alone(&input, &format!("Upsample({size}, mode = \"{mode}\", align_corners = {align_corners})"));
        }
    }
}

#[test]
fn interpolation_of_signals() {
    alone(&[3, 11], "Upsample(size = 17)");
    alone(&[3, 11], "Upsample(3)");
    alone(&[3, 11], "Upsample(1.7, mode = \"linear\")");
    alone(&[3, 11], "Upsample(size = 4, mode = \"linear\", align_corners = true)");
}

/// The rows and columns that f32 rounds to are those of the CPU backend, and the gradient finds all of them.
#[test]
fn nearest_elements_of_long_signals() {
    for (length, size) in [(4099, "size = 12289"), (12289, "size = 4099"), (7001, "1.1"), (5003, "0.7")] {
        for mode in ["nearest", "nearest-exact"] {
            check(size, 1, |graph| {
                let input = graph.input(numbers(&[1, length])).unwrap();
                layer(graph, input, &format!("Upsample({size}, mode = \"{mode}\")"))
            });
        }
    }
}

#[test]
fn interpolation_adds_gradients() {
    twice([3, 6, 7], "Upsample(1.5, mode = \"bilinear\")");
    twice([3, 6, 7], "Upsample(size = [9; 4], mode = \"bicubic\")");
    twice([3, 6, 7], "Upsample(size = [9; 4])");
}

#[test]
fn padding() {
    for mode in ["constant", "reflect", "replicate", "circular"] {
        for (input, sides) in [([2, 7, 5], "[3; 1; 0; 5]"), ([3, 6, 7], "[4; 5; 4; 3]"), ([2, 3, 8], "2")] {
            alone(&input, &format!("Pad({sides}, mode = \"{mode}\")"));
        }
        twice([3, 6, 7], &format!("Pad([5; 2; 0; 3], mode = \"{mode}\")"));
        alone(&[4, 9], &format!("Pad([3; 2], mode = \"{mode}\")"));
        alone(&[4, 9], &format!("Pad([3; 2; 1; 2], mode = \"{mode}\")"));
        alone(&[13], &format!("Pad(4, mode = \"{mode}\")"));
    }
    for text in
        ["Pad([3; 1; 0; 5], value = -0.75)", "Pad([-2; 1; 3; -4], value = 0.3)", "Pad(-1)", "Pad([-7; 8], value = 1.5)"]
    {
        alone(&[2, 9, 8], text);
    }
    // More at an edge than there are elements, and an axis of one element, which is both edges.
    alone(&[2, 1, 3], "Pad([7; 9; 2; 4], mode = \"replicate\")");
    check("what is padded and cut off again", 2, |graph| {
        let input = graph.input(numbers(&[2, 5, 6])).unwrap();
        chain(graph, input, "Tanh | Pad([2; 3; 1; 0], mode = \"reflect\") | Pad([-2; -3; -1; 0]) | Tanh")
    });
}

#[test]
fn sixteen_bits() {
    for text in [
        "Upsample(1.5, mode = \"bilinear\")",
        "Upsample(size = [9; 4], mode = \"bicubic\")",
        "Upsample(size = [9; 4])",
        "Pad([5; 2; 0; 3], mode = \"reflect\")",
        "Pad([-1; 2; 0; 3], value = 0.5)",
    ] {
        check_narrow(text, 2, |graph| {
            let input = graph.input(numbers(&[3, 7, 6])).unwrap();
            layer(graph, input, text)
        });
    }
}
