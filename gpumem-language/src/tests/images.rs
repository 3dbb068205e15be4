//! Images of bytes, and lists of numbers.

use super::{assert_mistakes, forward, mistakes, sound};

/// Inputs of bytes.
#[test]
fn images() {
    let body = "[Normalize((0.5, 0.5, 0.5), (0.25, 0.5, 1)), Conv2d(8, 3)]";
    let of = |input: &str| forward(input, "Map<8, 6, 6>", body, "");
    sound(&of("Images<u8, 3, 8, 8>"));
    for (input, message) in [
        (
            "Images<3, 8, 8>",
            "`Images` says what it consists of; write `Images<u8, 3, 8, 8>`, or `Image<3, 8, 8>` for an input of numbers",
        ),
        (
            "Images<f32, 3, 8, 8>",
            "`Images` are of `u8`, not of `f32`; write `Images<u8, 3, 8, 8>`, or `Image<3, 8, 8>` for an input of numbers",
        ),
        ("Image<u8, 3, 8, 8>", "an input of bytes is called `Images`; write `Images<u8, 3, 8, 8>`"),
        ("Image<f32, 3, 8, 8>", "`Image` does not say what it consists of; write `Image<3, 8, 8>`"),
        ("Images<u8, 3, 8>", "`Images` has 3 dimensions, `Images<u8, C, H, W>`, but 2 are given"),
    ] {
        assert_mistakes(&of(input), &[(input, message)]);
    }
    let text = "pub struct Net; fn forward(x: Images<u8, 3, 8, 8>) -> (Map<3, 8, 8>, Map<3, 8, 8>) { [Outputs(Normalize, [])] }";
    let message = "forward promises Map<3, 8, 8> = [3, 8, 8], but the network returns its bytes";
    assert_mistakes(text, &[("Map<3, 8, 8>", message)]);
}

/// Numbers in parentheses.
#[test]
fn lists_of_numbers() {
    let of = |layer: &str| forward("Image<3, 8, 8>", "Map<3, 8, 8>", &format!("[{layer}]"), "const WIDTH: usize = 2;");
    sound(&of("Normalize(mean = (0.5, WIDTH, -1), std = WIDTH)"));
    for (layer, place, message) in [
        (
            "Normalize((0.5, 0.25))",
            "(0.5, 0.25)",
            "layer 0 `Normalize` has 2 numbers in `mean`, but [3, 8, 8] has 3 channels; write as many, or one for all of them",
        ),
        ("Normalize((0.5, true, 1))", "true", "expected a number, found `true`"),
        (
            "MaxPool2d((3, 1, 1), 1, padding = 1)",
            "(3, 1, 1)",
            "layer 0 `MaxPool2d` needs a whole number or a pair (height, width) for `kernel_size`, not (3, 1, 1)",
        ),
    ] {
        let found = mistakes(&of(layer));
        assert!(found.contains(&(place.into(), message.into())), "{layer}: {found:#?}");
    }
}
