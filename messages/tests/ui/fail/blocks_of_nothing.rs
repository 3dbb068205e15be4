use gpumem::network;

mod ordinary {
    pub fn bottleneck() {}
}

network! {
    pub struct Net;

    use blocks ordinary;

    fn forward(x: Features<4>) -> Features<4> { [Linear(4)] }
}

network! {
    pub struct Other;

    use blocks crate::missing::resnet;

    fn forward(x: Features<4>) -> Features<4> { [Linear(4)] }
}

fn main() {}
