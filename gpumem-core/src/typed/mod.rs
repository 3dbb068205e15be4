//! Shapes as types: `typenum` proves what the macro computed.
//!
//! The macro reports shape mistakes itself, in decimals. Independently of it, the generated code asserts for each
//! distinct edge of the network that the type-level rule of the operation maps the input shape to the output shape.

mod axes;
mod volumes;

use core::marker::PhantomData;
use core::ops;
use typenum::{Diff, Prod, Quot, Sum, U1, U2, Unsigned};

pub use axes::{
    Align, AsStrided1, AsStrided2, AsStrided3, AsStrided4, AsStrided5, AsStrided6, At, Attention, AttentionApart,
    Broadcast, Channels, Concat, Flatten, MatMul, MatMulTransposed, Permute2, Permute3, Permute4, Permute5, Permute6,
    RelativeBias, ScatterAdd, Slice, Stretch, StretchAll, TakeAlong,
};
pub use typenum::{B0, B1, UInt, UTerm};
pub use volumes::{AdaptivePool3d, Convolution3d, Pool3d, TransposedConvolution3d};

/// A dimension that is shown in decimals: `Tensor<f32, (D<64>, D<10>)>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct D<const N: usize>;

/// Maps [`D<N>`](D) to its typenum number, for the network `Net`. Generated code implements it once for each distinct number
/// of a network. `Net`, a type of that code, keeps the implementations of two networks apart.
pub trait TypenumOf<Net> {
    /// The number, in binary.
    type Number: Unsigned;
}

/// Fails to compile unless `D<N>` is mapped to the typenum number of the same value.
pub const fn assert_dimension<Net, const N: usize>()
where
    D<N>: TypenumOf<Net>,
{
    assert!(<D<N> as TypenumOf<Net>>::Number::USIZE == N, "a dimension is mapped to another number");
}

/// A tuple of typenum numbers: the dimensions of one sample.
pub trait Dimensions {}

/// The shape rule of an operation: maps the dimensions of the input to those of the output.
pub trait ShapeRule<In> {
    /// Dimensions of the output.
    type Out: Dimensions;
}

/// Compiles only if `Rule` maps `In` to `Out`.
pub const fn assert_edge<Rule: ShapeRule<In, Out = Out>, In, Out: Dimensions>() {}

/// Rule of an operation whose output has the dimensions of its input.
#[derive(Debug)]
pub struct Same;

impl<In: Dimensions> ShapeRule<In> for Same {
    type Out = In;
}

/// Rule of two inputs of one shape, which is also that of the output.
#[derive(Debug)]
pub struct Equal;

impl<In: Dimensions> ShapeRule<(In, In)> for Equal {
    type Out = In;
}

/// Rule with the features of input and output.
#[derive(Debug)]
pub struct Product<I, O>(PhantomData<(I, O)>);

impl<I: Unsigned, O: Unsigned> ShapeRule<(I,)> for Product<I, O> {
    type Out = (O,);
}

impl<I: Unsigned, O: Unsigned, T: Unsigned> ShapeRule<(T, I)> for Product<I, O> {
    type Out = (T, O);
}

/// Rule with the elements of a row, the last axis. The shape does not change.
#[derive(Debug)]
pub struct Rows<N>(PhantomData<N>);

impl<N: Unsigned> ShapeRule<(N,)> for Rows<N> {
    type Out = (N,);
}

impl<N: Unsigned, T: Unsigned> ShapeRule<(T, N)> for Rows<N> {
    type Out = (T, N);
}

/// Rule with the elements of a row of the table.
#[derive(Debug)]
pub struct Gather<N>(PhantomData<N>);

impl<T: Unsigned, N: Unsigned> ShapeRule<(T,)> for Gather<N> {
    type Out = (T, N);
}

/// Rule of the position of the largest index.
#[derive(Debug)]
pub struct ArgMax;

impl<T: Unsigned> ShapeRule<(T,)> for ArgMax {
    type Out = (U1,);
}

/// Rule of rows of a sequence that are taken by index.
#[derive(Debug)]
pub struct Take;

impl<T: Unsigned, N: Unsigned, C: Unsigned> ShapeRule<((T, N), (C,))> for Take {
    type Out = (C, N);
}

/// Rule with the length of the second of three axes, which is dropped.
#[derive(Debug)]
pub struct Reduce<N>(PhantomData<N>);

impl<A: Unsigned, N: Unsigned, B: Unsigned> ShapeRule<(A, N, B)> for Reduce<N> {
    type Out = (A, B);
}

/// Rule with the scale of the height and of the width.
#[derive(Debug)]
pub struct Resize<SH, SW>(PhantomData<(SH, SW)>);

impl<C: Unsigned, H: ops::Mul<SH>, W: ops::Mul<SW>, SH, SW> ShapeRule<(C, H, W)> for Resize<SH, SW>
where
    Prod<H, SH>: Unsigned,
    Prod<W, SW>: Unsigned,
{
    type Out = (C, Prod<H, SH>, Prod<W, SW>);
}

/// Rule with gates of a unit, hidden units and directions. A row of the input has the gates of a time step.
#[derive(Debug)]
pub struct Recurrence<G, H, N>(PhantomData<(G, H, N)>);

impl<T: Unsigned, M, G: ops::Mul<H, Output = M>, H: ops::Mul<N>, N> ShapeRule<(T, M)> for Recurrence<G, H, N>
where
    Prod<H, N>: Unsigned,
{
    type Out = (T, Prod<H, N>);
}

/// Rule with gates of a unit, hidden units, outputs of a time step and directions, for fewer outputs than units.
#[derive(Debug)]
pub struct ProjectedRecurrence<G, H, P, N>(PhantomData<(G, H, P, N)>);

impl<T: Unsigned, M, G: ops::Mul<H, Output = M>, H, P: ops::Mul<N>, N> ShapeRule<(T, M)>
    for ProjectedRecurrence<G, H, P, N>
where
    Prod<P, N>: Unsigned,
{
    type Out = (T, Prod<P, N>);
}

/// Rule of a selective scan, with the inputs u, delta, A_log, B, C and D.
#[derive(Debug)]
pub struct SelectiveScan;

impl<T: Unsigned, C: Unsigned, N> ShapeRule<((T, C), (T, C), (C, N), (T, N), (T, N), (C,))> for SelectiveScan {
    type Out = (T, C);
}

/// Rule with height and width of the output.
#[derive(Debug)]
pub struct AdaptivePool<H, W>(PhantomData<(H, W)>);

impl<C: Unsigned, H: Unsigned, W: Unsigned, OH: Unsigned, OW: Unsigned> ShapeRule<(C, H, W)> for AdaptivePool<OH, OW> {
    type Out = (C, OH, OW);
}

/// The number of positions of a window along one axis: `(self + 2 * P + E - D * (K - 1) - 1) / S + 1`. `E`, the overhang, is how far the
/// last window reads beyond the padding, which is equal at both ends.
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

/// Rule with kernel, stride, padding, dilation and overhang of the height, then of the width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct Pool<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(PhantomData<(KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>);

impl<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, H, W> ShapeRule<(C, H, W)>
    for Pool<KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    C: Unsigned,
    H: Window<KH, SH, PH, DH, EH>,
    W: Window<KW, SW, PW, DW, EW>,
{
    type Out = (C, H::Out, W::Out);
}

/// Rule with output channels, then kernel, stride, padding, dilation and overhang of the height, then of the width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct Convolution<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
    PhantomData<(O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
);

impl<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, H, W> ShapeRule<(C, H, W)>
    for Convolution<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    O: Unsigned,
    C: Unsigned,
    H: Window<KH, SH, PH, DH, EH>,
    W: Window<KW, SW, PW, DW, EW>,
{
    type Out = (O, H::Out, W::Out);
}

/// The length of a transposed convolution's output along one axis: `(self - 1) * S + D * (K - 1) + E + 1 - 2 * P`.
pub trait Spread<K, S, P, D, E> {
    /// The length of the output.
    type Out: Unsigned;
}

type Grown<H, K, S, D> = Sum<Prod<Diff<H, U1>, S>, Prod<D, Diff<K, U1>>>;
type Whole<H, K, S, D, E> = Sum<Sum<Grown<H, K, S, D>, E>, U1>;

impl<H, K, S, P, D, E> Spread<K, S, P, D, E> for H
where
    H: ops::Sub<U1>,
    K: ops::Sub<U1>,
    Diff<H, U1>: ops::Mul<S>,
    D: ops::Mul<Diff<K, U1>>,
    Prod<Diff<H, U1>, S>: ops::Add<Prod<D, Diff<K, U1>>>,
    Grown<H, K, S, D>: ops::Add<E>,
    Sum<Grown<H, K, S, D>, E>: ops::Add<U1>,
    P: ops::Mul<U2>,
    Whole<H, K, S, D, E>: ops::Sub<Prod<P, U2>>,
    Diff<Whole<H, K, S, D, E>, Prod<P, U2>>: Unsigned,
{
    type Out = Diff<Whole<H, K, S, D, E>, Prod<P, U2>>;
}

/// Rule with output channels, then kernel, stride, padding, dilation and output padding of the height, then of the width.
#[derive(Debug)]
#[allow(clippy::type_complexity)]
pub struct TransposedConvolution<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>(
    PhantomData<(O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW)>,
);

impl<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW, C, H, W> ShapeRule<(C, H, W)>
    for TransposedConvolution<O, KH, SH, PH, DH, EH, KW, SW, PW, DW, EW>
where
    O: Unsigned,
    C: Unsigned,
    H: Spread<KH, SH, PH, DH, EH>,
    W: Spread<KW, SW, PW, DW, EW>,
{
    type Out = (O, H::Out, W::Out);
}

/// Rule with height and width of an interpolated output.
#[derive(Debug)]
pub struct Interpolate<H, W>(PhantomData<(H, W)>);

impl<C: Unsigned, H: Unsigned, W: Unsigned, OH: Unsigned, OW: Unsigned> ShapeRule<(C, H, W)> for Interpolate<OH, OW> {
    type Out = (C, OH, OW);
}

/// Rule with the rows that are added and the rows that are cut off, then the columns.
#[derive(Debug)]
pub struct Pad<AH, RH, AW, RW>(PhantomData<(AH, RH, AW, RW)>);

impl<C: Unsigned, H: ops::Add<AH>, W: ops::Add<AW>, AH, RH, AW, RW> ShapeRule<(C, H, W)> for Pad<AH, RH, AW, RW>
where
    Sum<H, AH>: ops::Sub<RH>,
    Sum<W, AW>: ops::Sub<RW>,
    Diff<Sum<H, AH>, RH>: Unsigned,
    Diff<Sum<W, AW>, RW>: Unsigned,
{
    type Out = (C, Diff<Sum<H, AH>, RH>, Diff<Sum<W, AW>, RW>);
}
