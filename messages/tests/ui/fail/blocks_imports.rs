use gpumem::{blocks, network, network_mod};

blocks! {
    pub mod mine {
        fn linear() -> Block { [Linear(4)] }
    }
}

network! {
    pub struct Written;

    pub use blocks mine;
    #[cfg(test)]
    use blocks self::{mine, mine as self_named};
    use blocks mine::*;

    fn forward(x: Features<4>) -> Features<4> { [linear()] }
}

#[network_mod]
mod attribute {
    pub struct Net;

    #[blocks(mine)]
    use super::mine;

    fn forward(x: Features<4>) -> Features<4> {
        [linear()]
    }
}

fn main() {}
