//! A network one of whose steps does not fit is refused in the name of that step.

use gpumem::network;

network! {
    pub struct Large;

    const CRITIC: Train = Train { batch: 64, trains: "critic*", loss: BceWithLogits(from = on_fake), cards: [GTX_1050_TI] };
    const GENERATOR: Train = Train {
        batch: 65536,
        trains: "generator*",
        optimizer: Adam { lr: 1e-3 },
        loss: BceWithLogits(from = on_fake),
        cards: [GTX_1050_TI],
    };

    fn forward(noise: Features<64>) -> Map<1, 64, 64> {
        [
            Linear(65536, name = "generator.fc"), Reshape(16, 64, 64), Relu,
            Conv2d(1, 3, padding = 1, name = "generator.conv"), tap(fake),
            Flatten, Linear(1, name = "critic"), tap(on_fake),
            from(fake),
        ]
    }
}

fn main() {}
