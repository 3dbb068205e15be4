//! Functions of one number, compiled from the formulas of [`gpumem_core::program::functions`].

use super::scalar::*;
use gpumem_core::program::functions::Function;
use gpumem_core::program::ops::Pointwise;

/// A function of one number with its arguments.
pub(in crate::kernels) trait Scalar: Copy + Send + Sync + 'static {
    /// Returns `f(x)`.
    fn value(&self, x: f32) -> f32;

    /// Returns the slope, from the element of the tensor that the gradient reads. If it reads none, the element may be any number.
    fn slope(&self, kept: f32) -> f32;
}

/// A use of a function.
pub(in crate::kernels) trait Use {
    type Out;
    fn apply(self, function: impl Scalar) -> Self::Out;
}

/// Defines a type for each function, and a match over them. `LeakyRelu(negative_slope: ..) { value: |x| A, slope: |y| B, .. }` is
/// `struct LeakyRelu { negative_slope: f32 }` with a `fn value(&self, x: f32) -> f32 { A }` and a `fn slope(&self, y: f32) -> f32 { B }`.
///
/// These are always inlined, unlike closures, whose loops would not be compiled for several instruction sets if they are long.
macro_rules! functions {
    ($($(#[$page:meta])*
    $name:ident($($argument:ident: $bound:ident $(($limit:literal))? = $default:literal),*) {
        value: |$x:ident| $value:expr,
        slope: |$kept:tt| $slope:expr,
        $($field:ident: $other:expr,)*
    })*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name {
                $($argument: f32,)*
            }

            // Not every formula uses all arguments.
            #[allow(unused_variables)]
            impl Scalar for $name {
                #[inline(always)]
                fn value(&self, $x: f32) -> f32 {
                    let $name { $($argument,)* } = *self;
                    $value
                }

                #[inline(always)]
                fn slope(&self, $kept: f32) -> f32 {
                    let $name { $($argument,)* } = *self;
                    $slope
                }
            }
        )*

        /// Calls `it` with a function.
        pub(in crate::kernels) fn with<U: Use>(pointwise: &Pointwise, it: U) -> U::Out {
            let mut arguments = pointwise.arguments.iter().map(|&argument| argument as f32);
            match pointwise.function {
                $(Function::$name => it.apply($name { $($argument: arguments.next().unwrap_or(0.0),)* }),)*
            }
        }
    };
}
gpumem_core::for_each_function! { functions }

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::program::functions::Kept;
    use gpumem_core::shape::Shape;

    /// The value of a function, and its slope, at this element.
    struct At(f32);

    impl Use for At {
        type Out = [f32; 2];

        fn apply(self, function: impl Scalar) -> [f32; 2] {
            [function.value(self.0), function.slope(self.0)]
        }
    }

    fn at(function: Function, arguments: &[f64], x: f32) -> [f32; 2] {
        with(&Pointwise { function, arguments: arguments.to_vec(), shape: Shape::new(&[1]) }, At(x))
    }

    #[test]
    fn functions_have_their_known_values() {
        let close = |function, arguments: &[f64], x, expected: f32| {
            let [value, _] = at(function, arguments, x);
            assert!((value - expected).abs() < 1e-6 * expected.abs().max(1.0), "{function:?}: {value} {expected}");
        };
        close(Function::Gelu, &[], 1.0, 0.841_344_7);
        close(Function::Gelu, &[], -2.0, -0.045_500_264);
        close(Function::GeluTanh, &[], 1.0, 0.841_192);
        close(Function::Silu, &[], 1.0, 0.731_058_6);
        close(Function::Sigmoid, &[], -100.0, 0.0);
        close(Function::Silu, &[], -100.0, 0.0);
        close(Function::Tanh, &[], 0.5, 0.462_117_16);
        close(Function::Relu6, &[], 7.0, 6.0);
        close(Function::LeakyRelu, &[0.25], -2.0, -0.5);
    }

    #[test]
    fn a_nan_does_not_vanish() {
        for &function in Function::ALL {
            let row = function.row();
            let defaults: Vec<f64> = row.arguments.iter().map(|argument| argument.default).collect();
            let found = at(function, &defaults, f32::NAN).map(f32::is_nan);
            assert_eq!(found, [true, row.kept != Kept::Nothing], "{function:?}");
        }
    }

    #[test]
    fn slopes_of_powers_at_zero() {
        assert_eq!([0.0, 1.0].map(|exponent| at(Function::Pow, &[exponent], 0.0)[1]), [0.0, 1.0]);
    }
}
