//! Shapes as types: `typenum` proves what the macro computed.
//!
//! The macro reports shape mistakes itself, in decimals. Independently of it, the generated code asserts for each
//! distinct edge of the network that the layer's type-level rule maps the input shape to the output shape.

use core::marker::PhantomData;
use core::ops;
use typenum::{Diff, Prod, Quot, Sum, U1, Unsigned};

pub use crate::layers::typed::*;
pub use typenum::{B0, B1, UInt, UTerm};

/// A dimension that reads in decimals: `Tensor<f32, (D<64>, D<10>)>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct D<const N: usize>;

/// Maps [`D<N>`](D) to its typenum number, for the network `Net`. Generated code implements it, once per distinct number
/// of a network; the parameter keeps two networks' implementations apart.
pub trait TypenumOf<Net> {
    /// The same number in binary.
    type Number: Unsigned;
}

/// Fails to compile unless `D<N>` is mapped to the number that says the same.
pub const fn assert_dimension<Net, const N: usize>()
where
    D<N>: TypenumOf<Net>,
{
    assert!(<D<N> as TypenumOf<Net>>::Number::USIZE == N, "a dimension is mapped to another number");
}

/// A tuple of typenum numbers: the dimensions of one sample.
pub trait Dimensions {}
impl<A: Unsigned> Dimensions for (A,) {}
impl<A: Unsigned, B: Unsigned> Dimensions for (A, B) {}
impl<A: Unsigned, B: Unsigned, C: Unsigned> Dimensions for (A, B, C) {}
impl<A: Unsigned, B: Unsigned, C: Unsigned, E: Unsigned> Dimensions for (A, B, C, E) {}

/// A layer's shape rule: which output dimensions an input has.
pub trait ShapeRule<In> {
    /// Dimensions of the output.
    type Out: Dimensions;
}

/// Compiles only if `Layer` maps `In` to `Out`.
pub const fn assert_layer<Layer: ShapeRule<In, Out = Out>, In, Out: Dimensions>() {}

/// The number of positions of a window along one axis: `(self + 2 * P + E - D * (K - 1) - 1) / S + 1`, where `E` is what
/// `ceil_mode` lets the last window read beyond the padding.
pub trait Window<K, S, P, D, E> {
    /// The number of positions.
    type Out: Unsigned;
}

type Padded<H, P, E> = Sum<Sum<Sum<H, P>, P>, E>;
type Span<K, D> = Prod<D, Diff<K, U1>>;
type Room<H, K, P, D, E> = Diff<Diff<Padded<H, P, E>, Span<K, D>>, U1>;

impl<H, K, S, P, D, E> Window<K, S, P, D, E> for H
where
    H: ops::Add<P>,
    Sum<H, P>: ops::Add<P>,
    Sum<Sum<H, P>, P>: ops::Add<E>,
    K: ops::Sub<U1>,
    D: ops::Mul<Diff<K, U1>>,
    Padded<H, P, E>: ops::Sub<Span<K, D>>,
    Diff<Padded<H, P, E>, Span<K, D>>: ops::Sub<U1>,
    Room<H, K, P, D, E>: ops::Div<S>,
    Quot<Room<H, K, P, D, E>, S>: ops::Add<U1>,
    Sum<Quot<Room<H, K, P, D, E>, S>, U1>: Unsigned,
{
    type Out = Sum<Quot<Room<H, K, P, D, E>, S>, U1>;
}

/// A layer whose output has the dimensions of its input.
#[derive(Debug)]
pub struct Same(PhantomData<()>);
impl<In: Dimensions> ShapeRule<In> for Same {
    type Out = In;
}
