//! Mistakes of a network with several training steps: each is said of the step that it is of.

use gpumem::prelude::*;

network! {
    pub struct Large;

    const CRITIC: Train = Train { batch: 64, trains: "critic*", loss: BceWithLogits(from = on_fake), cards: [GTX_1050_TI] };
    const GENERATOR: Train = Train {
        batch: 4096,
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

network! {
    pub struct Small;

    const HEAD: Train = Train { batch: 4, trains: "head*", loss: CrossEntropy };
    const ALL: Train = Train { batch: 4, loss: CrossEntropy };

    fn forward(x: Features<5>) -> Logits<3> {
        [Linear(7, name = "body"), Tanh, Linear(3, name = "head")]
    }
}

fn main() -> Result<(), gpumem::Error> {
    let mut net = Small::on(&gpumem::default_device()?)?;
    let (x, labels): (Tensor<f32, (D<4>, D<5>)>, Tensor<u32, (D<4>,)>) = (Tensor::zeros(), Tensor::zeros());
    // The network has no step of its own.
    net.train_step(&x, &labels)?;
    // The first step takes no numbers as labels.
    Small::head(&mut net).train_step(&x, &x)?;
    Ok(())
}
