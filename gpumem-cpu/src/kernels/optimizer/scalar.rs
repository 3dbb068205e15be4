//! The numbers of the rules of `gpumem_core::train::optim`: doubles for those of a step, floats for those of an element.

use gpumem_core::train::optim::Scalar;
use std::ops::{Add, Div, Mul, Sub};

/// Implements an operator for a number and another one, and for a number and a constant.
macro_rules! operator {
    ($name:ident($float:ty), $trait:ident, $method:ident) => {
        impl $trait for $name {
            type Output = $name;

            #[inline(always)]
            fn $method(self, other: $name) -> $name {
                $name(self.0.$method(other.0))
            }
        }

        impl $trait<f64> for $name {
            type Output = $name;

            #[inline(always)]
            fn $method(self, constant: f64) -> $name {
                $name(self.0.$method(constant as $float))
            }
        }
    };
}

/// Defines a number of a rule that is a float.
macro_rules! scalar {
    ($(#[$doc:meta])* $name:ident($float:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name(pub(super) $float);

        operator!($name($float), Add, add);
        operator!($name($float), Sub, sub);
        operator!($name($float), Mul, mul);

        impl Div for $name {
            type Output = $name;

            #[inline(always)]
            fn div(self, other: $name) -> $name {
                $name(self.0 / other.0)
            }
        }

        impl Scalar for $name {
            type Truth = bool;

            #[inline(always)]
            fn of(value: f64) -> $name {
                $name(value as $float)
            }

            #[inline(always)]
            fn sqrt(self) -> $name {
                $name(self.0.sqrt())
            }

            #[inline(always)]
            fn abs(self) -> $name {
                $name(self.0.abs())
            }

            #[inline(always)]
            fn sign(self) -> $name {
                // `signum` of 0 is 1.
                if self.0 == 0.0 { $name(0.0) } else { $name(self.0.signum()) }
            }

            #[inline(always)]
            fn max(self, other: $name) -> $name {
                $name(self.0.max(other.0))
            }

            fn power(base: f64, exponent: $name) -> $name {
                $name((base as $float).powf(exponent.0))
            }

            fn to_the(self, exponent: f64) -> $name {
                $name(self.0.powf(exponent as $float))
            }

            #[inline(always)]
            fn less(self, other: $name) -> bool {
                self.0 < other.0
            }

            #[inline(always)]
            fn select(condition: bool, then: $name, otherwise: $name) -> $name {
                if condition { then } else { otherwise }
            }

            fn repeat<const COUNT: usize>(
                mut numbers: [$name; COUNT],
                goes_on: impl Fn([$name; COUNT]) -> bool,
                next: impl Fn([$name; COUNT]) -> [$name; COUNT],
            ) -> [$name; COUNT] {
                while goes_on(numbers) {
                    numbers = next(numbers);
                }
                numbers
            }
        }
    };
}

scalar! {
    /// A number of an element.
    F32(f32)
}

scalar! {
    /// A number of a step.
    F64(f64)
}
