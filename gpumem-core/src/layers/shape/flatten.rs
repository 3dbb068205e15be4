use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::shape::{Shape, product};

/// `Flatten`: all elements of a sample as one vector.
///
/// * Input of any shape, numbers or tokens; output `[N]` with as many elements. The same memory under another shape: no operation.
/// * Parameters: none.
/// * Backward keeps nothing.
///
/// PyTorch: `torch.nn.Flatten()`.
#[derive(Clone, Debug)]
pub struct Flatten;

impl Layer for Flatten {
    const NAME: &'static str = "Flatten";

    fn read(_: &mut Arguments<'_>) -> Flatten {
        Flatten
    }

    fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
        let shape = Shape::new(&[product(x[0].numbers_or_tokens()?.dims())]);
        Ok(b.view(x[0], shape))
    }
}
