use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::functions::Function;
use crate::program::ops::Pointwise;
use alloc::vec::Vec;

/// `Gelu(approximate = "none")`: Gaussian error linear unit, `x * Phi(x)`. All of it may be left out: `Gelu`.
///
/// * Options: `approximate = "none"` (the error function) or `"tanh"`
///   (`0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`).
/// * Input and output of any one shape.
/// * Parameters: none.
/// * Backward keeps the input; nothing if the input is the output of a `BatchNorm2d` that no other layer reads.
///
/// PyTorch: `torch.nn.GELU(approximate)`.
#[derive(Clone, Debug)]
pub struct Gelu {
    function: Function,
}

impl Layer for Gelu {
    const NAME: &'static str = "Gelu";
    const KEEPS_SHAPE: bool = true;

    fn read(from: &mut Arguments<'_>) -> Gelu {
        let functions = [Function::Gelu, Function::GeluTanh];
        Gelu { function: functions[from.option("approximate").choice(&["none", "tanh"])] }
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        b.op(Pointwise { function: self.function, arguments: Vec::new(), shape: x[0].numbers()? }, x)
    }
}
