use gpumem::{blocks, network};

blocks! {
    pub mod wide {
        fn stage(channels: usize) -> Block {
            [convolution(channels, 33)]
        }

        fn convolution(channels: usize, size: usize) -> Block {
            [Conv2d(channels, size), Relu(inplace)]
        }
    }

    pub mod narrow {
        fn convolution(channels: usize) -> Block {
            [Conv2d(channels, 1)]
        }

        fn head() -> Block {
            [Flatten, Linear(10)]
        }
    }
}

network! {
    pub struct Net;

    use blocks {wide, narrow};

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [
            wide::stage(8),
            stage(8, 8),
            convolution(8),
            narrow::convlution(8),
            narow::convolution(8),
            heed,
        ]
    }
}

network! {
    pub struct Unimported;

    fn forward(image: Image<3, 32, 32>) -> Logits<10> {
        [Linear(wide::WIDTH), narrow::head()]
    }
}

fn main() {}
