use crate::layers::Layer;
use crate::layers::arguments::Arguments;
use crate::layers::builder::{Builder, Value};
use crate::layers::mistake::Mistake;
use crate::program::ops::{AveragePool, Reduce, Reduction, Windows};
use crate::shape::{Shape, product};
use alloc::vec;
use alloc::vec::Vec;

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug)]
            pub struct $name {
                dim: Vec<i64>,
                keepdim: bool,
            }

            impl Layer for $name {
                const NAME: &'static str = stringify!($name);

                fn read(from: &mut Arguments<'_>) -> $name {
                    $name { dim: from.required("dim").axes(), keepdim: from.option("keepdim").flag(false) }
                }

                fn build(&self, b: &mut Builder<'_>, x: &[Value]) -> Result<Value, Mistake> {
                    reduced(b, x[0], Reduction::$name, &self.dim, self.keepdim)
                }
            }
        )*
    };
}

reductions! {
    /// `Sum(dim)`, an axis or several as `(2, 3)`: the sum along axes.
    ///
    /// * Options: `keepdim = false`; if true, the axes stay, with length 1. Axes are as PyTorch counts them: the batch is 0, and -1 is the
    ///   last.
    /// * Input of any shape; output of the axes that are left, `[1]` if none is.
    /// * Inside `lengths` only the first `n` steps of each sample count; if `n` is 0 the result is 0.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `x.sum(dim, keepdim)`.
    Sum;
    /// `Mean(dim)`, an axis or several as `(2, 3)`: the mean along axes.
    ///
    /// * Options: `keepdim = false`; if true, the axes stay, with length 1. Axes are as PyTorch counts them: the batch is 0, and -1 is the
    ///   last.
    /// * Input of any shape; output of the axes that are left, `[1]` if none is.
    /// * Inside `lengths` only the first `n` steps of each sample count; if `n` is 0 the result is 0.
    /// * Parameters: none.
    /// * Backward keeps nothing.
    ///
    /// PyTorch: `x.mean(dim, keepdim)`.
    Mean;
    /// `Max(dim)`, an axis or several as `(2, 3)`: the maximum along axes.
    ///
    /// * Options: `keepdim = false`; if true, the axes stay, with length 1. Axes are as PyTorch counts them: the batch is 0, and -1 is the
    ///   last.
    /// * Input of any shape; output of the axes that are left, `[1]` if none is. The gradient goes to the maximum, the first of
    ///   several.
    /// * Inside `lengths` only the first `n` steps of each sample count; if `n` is 0 the result is 0.
    /// * Parameters: none.
    /// * Backward keeps the place of each maximum, 4 bytes.
    ///
    /// PyTorch: `x.max(dim, keepdim).values`.
    Max;
}

/// Returns, for each axis of a sample, true if it is one of `dim`, as PyTorch counts them.
pub(super) fn named(x: &Value, dim: &[i64]) -> Result<Vec<bool>, Mistake> {
    let mut named = vec![false; x.shape.rank()];
    for &dim in dim {
        let axis = x.axis(dim)?;
        if core::mem::replace(&mut named[axis], true) {
            return Err(Mistake::of("dim", "names an axis twice"));
        }
    }
    Ok(named)
}

/// Returns a shape without some of its axes, or with length 1 in their place.
pub(in crate::layers) fn left(shape: Shape, gone: &[bool], keepdim: bool) -> Shape {
    let left = shape.dims().iter().zip(gone).filter(|(_, gone)| keepdim || !**gone);
    let mut left: Vec<u64> = left.map(|(&length, &gone)| if gone { 1 } else { length }).collect();
    if left.is_empty() {
        left.push(1);
    }
    Shape::new(&left)
}

/// Reduces a value along these axes, as PyTorch counts them.
pub(in crate::layers) fn reduced(
    b: &mut Builder<'_>,
    x: Value,
    reduction: Reduction,
    dim: &[i64],
    keepdim: bool,
) -> Result<Value, Mistake> {
    let shape = x.numbers()?;
    let gone = named(&x, dim)?;
    let mut y = x;
    if let (Reduction::Mean, Some([channels, height, width]), [false, true, true]) =
        (reduction, shape.as_map(), &gone[..])
    {
        // This operation also takes maps with the layout channels last.
        let op = AveragePool { channels, windows: Windows::Adaptive, input: [height, width], output: [1, 1] };
        y = b.op(op, &[y])?;
    } else {
        // Adjacent axes are reduced as one. The last ones come first, so that earlier axes keep their positions.
        let mut end = shape.rank();
        while let Some(last) = gone[..end].iter().rposition(|&gone| gone) {
            let first = gone[..last].iter().rposition(|&gone| !gone).map_or(0, |kept| kept + 1);
            let dims = y.shape.dims();
            let inner = product(&dims[last + 1..]);
            let (outer, length) = (product(&dims[..first]), product(&dims[first..=last]));
            let mut left = dims[..first].to_vec();
            left.extend(core::iter::repeat_n(1, last + 1 - first).chain(dims[last + 1..].iter().copied()));
            // A length may be 0 even if there is one step only.
            if length > 1 || b.lengths_of(&y).is_some() {
                let rows = b.reshaped(y, Shape::new(&[outer, length, inner]));
                y = b.op(Reduce { reduction, outer, length, inner, counted: false }, &[rows])?;
            }
            y = b.reshaped(y, Shape::new(&left));
            end = first;
        }
    }
    Ok(b.reshaped(y, left(shape, &gone, keepdim)))
}
