//! Layers of one's own, beside networks and in them, in both forms, under another name of the library.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

/// Re-exports, as those of a company's own crate.
pub mod company {
    pub use ::gpumem;
}

use company::gpumem::operation::{Backward, Forward};
use company::gpumem::{Network, network_mod, operation};

/// Functions as a type.
#[derive(Debug)]
pub struct Twice;

impl Twice {
    fn forward(call: &mut Forward<'_>) {
        call.y.iter_mut().zip(call.x).for_each(|(y, x)| *y = 2.0 * x);
    }

    fn backward(call: &mut Backward<'_>) {
        let Some(dx) = &mut call.dx else { return };
        dx.iter_mut().zip(call.dy).for_each(|(dx, dy)| *dx += 2.0 * dy);
    }
}

operation! {
    crate = company::gpumem;

    /// Twice what arrives.
    pub fn Double(x) { cpu: Twice }

    /// `x * sigmoid(beta * x)`.
    pub fn Swish(x, beta: f64 = 1.0) { x * sigmoid(beta * x) }
}

/// A network with a layer of its own.
#[network_mod(crate = super::company::gpumem)]
pub mod module {
    /// The network.
    pub struct Net;

    #[blocks]
    use super::{Double, Swish as swishes};

    const INFER: Infer = Infer { batch: 1 };

    const LIMIT: f64 = 3.0;

    operation! {
        /// Never above the limit.
        fn Below(x) { min(x, LIMIT) }
    }

    fn forward(features: Features<8>) -> Features<8> {
        [Linear(8), Double, swishes::Swish(1.5), Below]
    }
}

/// What it says.
pub fn main() {
    let kinds = || module::Net::LAYERS.iter().map(|layer| layer.kind);
    assert!(kinds().eq(["Linear", "Double", "Swish", "Below"]));
    let mut net = module::Net::on(&company::gpumem::Cpu::new()).unwrap();
    let output = net.forward(&company::gpumem::Tensor::from_fn(|index| index as f32)).unwrap();
    assert!(output.into_vec().iter().all(|&value| value <= 3.0));
}
