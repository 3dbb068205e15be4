//! Functions of a layer of one's own, as `operation!` declares them, and their arguments.
//!
//! A layer that is a formula needs no functions. A layer with functions has them twice: a Rust module or type with `forward`
//! and `backward` for the CPU, and a CUDA file with kernels of these names for cards.
//!
//! ```
//! /// `y = weight * x`, with one weight for each channel.
//! mod channel_scale {
//!     use gpumem_core::operation::{Backward, Forward};
//!
//!     pub fn forward(call: &mut Forward<'_>) {
//!         let plane = call.size("height") * call.size("width");
//!         let weight = call.parameters[0];
//!         for (index, (y, x)) in call.y.iter_mut().zip(call.x).enumerate() {
//!             *y = weight[index / plane % weight.len()] * x;
//!         }
//!     }
//!
//!     pub fn backward(call: &mut Backward<'_>) {
//!         let plane = call.size("height") * call.size("width");
//!         let channels = call.size("channels");
//!         for (index, dy) in call.dy.iter().enumerate() {
//!             let channel = index / plane % channels;
//!             if let Some(dx) = &mut call.dx {
//!                 dx[index] += call.parameters[0][channel] * dy;
//!             }
//!             if let Some(dweight) = &mut call.dparameters[0] {
//!                 dweight[channel] += call.x[index] * dy;
//!             }
//!         }
//!     }
//! }
//! ```

use crate::error::Error;
use crate::program::ops::Declared;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The functions of the operations that a network, or a module of blocks, declares and uses.
#[derive(Debug)]
pub struct Operations {
    /// Its own functions, in the order of their declaration.
    pub own: &'static [Functions],
    /// Operations of the modules that it uses, in the order of its `use blocks`.
    pub used: &'static [&'static Operations],
}

impl Operations {
    /// No operation.
    pub const NONE: Operations = Operations { own: &[], used: &[] };

    /// Returns the functions of an operation.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there are no such functions at the end of its route.
    pub fn find(&self, operation: &Declared) -> Result<&Functions, Error> {
        let found = operation.route.split_last().and_then(|(own, modules)| {
            let step = |at: &Operations, &module: &u64| at.used.get(usize::try_from(module).ok()?).copied();
            let mut at: &Operations = self;
            for module in modules {
                at = step(at, module)?;
            }
            at.own.get(usize::try_from(*own).ok()?)
        });
        let found = found.filter(|functions| functions.name == operation.name);
        found.ok_or(Error::Damaged("an operation of the user's has no functions where the program says"))
    }
}

/// The functions of one operation.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// The layer's name.
    pub name: &'static str,
    /// The functions for the CPU; `None` without `cpu`.
    pub cpu: Option<CpuFunctions>,
    /// The kernels for cards; `None` without `cuda`.
    pub cuda: Option<CudaFile>,
}

impl Functions {
    /// Returns the error of a device whose field the operation lacks: `cpu`, written `cpu: path`.
    pub fn missing(&self, device: &'static str, field: &str, written: &str) -> Error {
        let what = format!(
            "operation `{}` is declared without `{field}`, so it counts in budgets, but nothing computes it here; add `{written}` \
             to its `operation!`",
            self.name
        );
        Error::Unsupported { device, what }
    }
}

/// The functions of an operation for the CPU.
#[derive(Clone, Copy, Debug)]
pub struct CpuFunctions {
    /// Computes the output.
    pub forward: fn(&mut Forward<'_>),
    /// Adds to the gradients.
    pub backward: fn(&mut Backward<'_>),
}

/// The kernels of an operation, `forward` and `backward`.
#[derive(Clone, Copy, Debug)]
pub struct CudaFile {
    /// The file's name, for messages.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// The dimensions and arguments of a layer, by the names in its declaration.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// Dimensions and integer arguments. `true` and `false` are 1 and 0.
    pub sizes: &'a [(String, u64)],
    /// The other arguments.
    pub fractions: &'a [(String, f64)],
}

impl Numbers<'_> {
    fn size(&self, name: &str) -> usize {
        let found = self.sizes.iter().find(|(known, _)| known == name);
        let (_, size) = found.unwrap_or_else(|| panic!("the operation declares no whole number called `{name}`"));
        usize::try_from(*size).unwrap_or(usize::MAX)
    }

    fn fraction(&self, name: &str) -> f64 {
        let found = self.fractions.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("the operation declares no `{name}: f64`")).1
    }
}

/// The arguments of `forward`. Tensors are row-major, with the batch outermost; each has all samples.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Samples.
    pub batch: usize,
    /// Dimensions and arguments.
    pub numbers: Numbers<'a>,
    /// The input.
    pub x: &'a [f32],
    /// The parameters, in the order of their declaration.
    pub parameters: Vec<&'a [f32]>,
    /// The output, to be filled. Its contents are arbitrary before that.
    pub y: &'a mut [f32],
    /// Tensors saved for `backward`, in the order of their declaration, to be filled. Empty if no backward pass needs them.
    pub saves: Vec<&'a mut [f32]>,
    /// Scratch memory. Its contents are arbitrary.
    pub workspace: &'a mut [f32],
}

/// The arguments of `backward`. It adds to gradients, which are 0 if nothing was added before.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Samples.
    pub batch: usize,
    /// Dimensions and arguments.
    pub numbers: Numbers<'a>,
    /// The gradient of the output.
    pub dy: &'a [f32],
    /// The input, if it is kept; else empty.
    pub x: &'a [f32],
    /// The parameters that are kept; the others are empty.
    pub parameters: Vec<&'a [f32]>,
    /// The output, if it is kept; else empty.
    pub y: &'a [f32],
    /// Tensors that `forward` saved.
    pub saves: Vec<&'a [f32]>,
    /// The gradient of the input; `None` if nothing before this layer is trained.
    pub dx: Option<&'a mut [f32]>,
    /// The gradients of the parameters; `None` for those that are not trained.
    pub dparameters: Vec<Option<&'a mut [f32]>>,
    /// Scratch memory. Its contents are arbitrary.
    pub workspace: &'a mut [f32],
}

impl Forward<'_> {
    /// Returns a dimension, or an argument of type `usize` or `bool`, by its name in the declaration.
    ///
    /// # Panics
    /// If the declaration has no such name.
    pub fn size(&self, name: &str) -> usize {
        self.numbers.size(name)
    }

    /// Returns an argument of type `f64`, by its name in the declaration.
    ///
    /// # Panics
    /// If the declaration has no such name.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers.fraction(name)
    }
}

impl Backward<'_> {
    /// Returns a dimension, or an argument of type `usize` or `bool`, by its name in the declaration.
    ///
    /// # Panics
    /// If the declaration has no such name.
    pub fn size(&self, name: &str) -> usize {
        self.numbers.size(name)
    }

    /// Returns an argument of type `f64`, by its name in the declaration.
    ///
    /// # Panics
    /// If the declaration has no such name.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers.fraction(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::ops::Declaration;
    use crate::shape::Shape;
    use alloc::string::ToString;

    static INNER: Operations =
        Operations { own: &[Functions { name: "Blur", cpu: None, cuda: None }], used: &[&Operations::NONE] };
    static OUTER: Operations = Operations { own: &[], used: &[&Operations::NONE, &INNER] };

    fn blur(route: &[u64]) -> Declaration {
        let shape = Shape::new(&[4]);
        Declaration {
            name: "Blur".into(),
            route: route.to_vec(),
            sizes: Vec::new(),
            numbers: Vec::new(),
            input: shape,
            output: shape,
            parameters: Vec::new(),
            saves: Vec::new(),
            keeps: Vec::new(),
            keeps_output: false,
            workspace: [0; 2],
            threads: [0; 2],
            macs: 0,
        }
    }

    #[test]
    fn functions_are_found_along_the_modules() {
        assert_eq!(OUTER.find(&blur(&[1, 0]).into()).unwrap().name, "Blur");
        for route in [&[][..], &[0], &[1], &[1, 1], &[0, 0], &[1, 0, 0], &[u64::MAX, 0]] {
            assert!(OUTER.find(&blur(route).into()).is_err(), "{route:?}");
        }
        assert!(OUTER.find(&Declaration { name: "Sharpen".into(), ..blur(&[1, 0]) }.into()).is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        let functions = OUTER.find(&blur(&[1, 0]).into()).unwrap();
        assert_eq!(
            functions.missing("CPU", "cpu", "cpu: path").to_string(),
            "CPU: operation `Blur` is declared without `cpu`, so it counts in budgets, but nothing computes it here; add `cpu: path` \
             to its `operation!`"
        );
    }
}
