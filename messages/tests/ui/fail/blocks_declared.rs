use gpumem::{blocks, blocks_mod, network};

blocks! {
    pub mod broken {
        fn twice() -> Block { [] }
        fn twice() -> Block { [] }
        fn parameter(n: u8) -> Block { [Linear(n)] }
        fn layer(n: usize) -> Block { [repeat(n, Lineer(n)), Relu(inplce)] }
        fn calls(n: usize) -> Block { [parameter(n, n)] }
    }
}

#[blocks_mod]
pub mod network_inside {
    pub struct Net;
}

#[blocks_mod(all)]
pub mod arguments {
    fn identity() -> Block {
        []
    }
}

#[blocks_mod]
pub fn function() {}

blocks! {}

network! {
    pub struct Net;

    use blocks broken;

    fn forward(x: Features<4>) -> Features<4> { [Linear(4), twice()] }
}

fn main() {}
