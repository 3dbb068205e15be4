//! Shapes as types: `typenum` proves what the macro computed.
//!
//! The macro reports shape mistakes itself, in decimals. Independently of it, the generated code asserts for each
//! distinct edge of the network that the type-level rule of the operation maps the input shape to the output shape.

use core::marker::PhantomData;
use core::ops;
use typenum::{Diff, IsEqual, IsLessOrEqual, Max, Maximum, Prod, Quot, Sum, True, U0, U1, U2, U3, Unsigned};

pub use typenum::{B0, B1, UInt, UTerm};

/// A dimension that reads in decimals: `Tensor<f32, (D<64>, D<10>)>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct D<const N: usize>;

/// Maps [`D<N>`](D) to its typenum number, for the network `Net`. Generated code implements it, once per distinct number
/// of a network; the parameter, a type of that code, keeps two networks' implementations apart.
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

/// An operation's shape rule: which output dimensions an input has.
pub trait ShapeRule<In> {
    /// Dimensions of the output.
    type Out: Dimensions;
}

/// Compiles only if `Rule` maps `In` to `Out`.
pub const fn assert_edge<Rule: ShapeRule<In, Out = Out>, In, Out: Dimensions>() {}

/// An operation whose output has the dimensions of its input.
#[derive(Debug)]
pub struct Same;

impl<In: Dimensions> ShapeRule<In> for Same {
    type Out = In;
}

/// Two inputs of one shape, which is that of the output.
#[derive(Debug)]
pub struct Equal;

impl<In: Dimensions> ShapeRule<(In, In)> for Equal {
    type Out = In;
}

/// Two inputs whose shapes are broadcast as numpy does.
#[derive(Debug)]
pub struct Broadcast;

/// The dimension that two dimensions are repeated to: the larger one, and each is that or 1.
///
/// `(larger - a) * (a - 1) = 0` says just that.
pub trait Stretch<Other> {
    /// The dimension.
    type Out: Unsigned;
}

impl<A, B> Stretch<B> for A
where
    A: Unsigned + Max<B> + ops::Sub<U1>,
    B: Unsigned + ops::Sub<U1>,
    Maximum<A, B>: Unsigned + ops::Sub<A> + ops::Sub<B>,
    Diff<Maximum<A, B>, A>: ops::Mul<Diff<A, U1>>,
    Diff<Maximum<A, B>, B>: ops::Mul<Diff<B, U1>>,
    Prod<Diff<Maximum<A, B>, A>, Diff<A, U1>>: IsEqual<U0, Output = True>,
    Prod<Diff<Maximum<A, B>, B>, Diff<B, U1>>: IsEqual<U0, Output = True>,
{
    type Out = Maximum<A, B>;
}

/// A shape with axes of length 1 put in front until it has as many as another one.
pub trait Align<Other> {
    /// The longer shape.
    type Out;
}

macro_rules! alignments {
    ($(($($short:ident),*) to ($($long:ident),*) = ($($out:ident),*);)*) => {
        $(impl<$($short,)* $($long),*> Align<($($long,)*)> for ($($short,)*) {
            type Out = ($($out,)*);
        })*
    };
}
alignments! {
    (A) to (E) = (A);
    (A) to (E, F) = (U1, A);
    (A) to (E, F, G) = (U1, U1, A);
    (A) to (E, F, G, H) = (U1, U1, U1, A);
    (A, B) to (E) = (A, B);
    (A, B) to (E, F) = (A, B);
    (A, B) to (E, F, G) = (U1, A, B);
    (A, B) to (E, F, G, H) = (U1, U1, A, B);
    (A, B, C) to (E) = (A, B, C);
    (A, B, C) to (E, F) = (A, B, C);
    (A, B, C) to (E, F, G) = (A, B, C);
    (A, B, C) to (E, F, G, H) = (U1, A, B, C);
    (A, B, C, I) to (E) = (A, B, C, I);
    (A, B, C, I) to (E, F) = (A, B, C, I);
    (A, B, C, I) to (E, F, G) = (A, B, C, I);
    (A, B, C, I) to (E, F, G, H) = (A, B, C, I);
}

/// Shapes of one rank, each dimension stretched.
pub trait StretchAll<Other> {
    /// The shape.
    type Out: Dimensions;
}

macro_rules! stretched {
    ($(($($left:ident $right:ident),*))*) => {
        $(impl<$($left: Stretch<$right>, $right),*> StretchAll<($($right,)*)> for ($($left,)*) {
            type Out = ($($left::Out,)*);
        })*
    };
}
stretched! { (A E) (A E, B F) (A E, B F, C G) (A E, B F, C G, I H) }

impl<L, R> ShapeRule<(L, R)> for Broadcast
where
    L: Align<R>,
    R: Align<L>,
    <L as Align<R>>::Out: StretchAll<<R as Align<L>>::Out>,
{
    type Out = <<L as Align<R>>::Out as StretchAll<<R as Align<L>>::Out>>::Out;
}

/// Rows and columns of two matrices.
#[derive(Debug)]
pub struct MatMul;

/// The same with the second matrix transposed.
#[derive(Debug)]
pub struct MatMulTransposed;

macro_rules! matrices {
    ($(($($axis:ident),*))*) => {
        $(
            impl<$($axis: Unsigned,)* M: Unsigned, K, N: Unsigned> ShapeRule<(($($axis,)* M, K), ($($axis,)* K, N))> for MatMul
            where
                ($($axis,)* M, N): Dimensions,
            {
                type Out = ($($axis,)* M, N);
            }

            impl<$($axis: Unsigned,)* M: Unsigned, K, N: Unsigned> ShapeRule<(($($axis,)* M, K), ($($axis,)* N, K))>
                for MatMulTransposed
            where
                ($($axis,)* M, N): Dimensions,
            {
                type Out = ($($axis,)* M, N);
            }
        )*
    };
}
matrices! { () (A) (A, B) }

/// All dimensions multiplied: the same elements as one vector.
#[derive(Debug)]
pub struct Flatten;

impl<N: Unsigned> ShapeRule<(N,)> for Flatten {
    type Out = (N,);
}

impl<A: Unsigned + ops::Mul<B>, B: Unsigned> ShapeRule<(A, B)> for Flatten
where
    Prod<A, B>: Unsigned,
{
    type Out = (Prod<A, B>,);
}

impl<A: Unsigned + ops::Mul<B>, B: Unsigned, C: Unsigned> ShapeRule<(A, B, C)> for Flatten
where
    Prod<A, B>: ops::Mul<C>,
    Prod<Prod<A, B>, C>: Unsigned,
{
    type Out = (Prod<Prod<A, B>, C>,);
}

impl<A: Unsigned + ops::Mul<B>, B: Unsigned, C: Unsigned, E: Unsigned> ShapeRule<(A, B, C, E)> for Flatten
where
    Prod<A, B>: ops::Mul<C>,
    Prod<Prod<A, B>, C>: ops::Mul<E>,
    Prod<Prod<Prod<A, B>, C>, E>: Unsigned,
{
    type Out = (Prod<Prod<Prod<A, B>, C>, E>,);
}

/// Features in, features out.
#[derive(Debug)]
pub struct Product<I, O>(PhantomData<(I, O)>);

impl<I: Unsigned, O: Unsigned> ShapeRule<(I,)> for Product<I, O> {
    type Out = (O,);
}

impl<I: Unsigned, O: Unsigned, T: Unsigned> ShapeRule<(T, I)> for Product<I, O> {
    type Out = (T, O);
}

/// Elements of a row, which is the last axis.
#[derive(Debug)]
pub struct Rows<N>(PhantomData<N>);

impl<N: Unsigned> ShapeRule<(N,)> for Rows<N> {
    type Out = (N,);
}

impl<N: Unsigned, T: Unsigned> ShapeRule<(T, N)> for Rows<N> {
    type Out = (T, N);
}

/// Channels: the first axis.
#[derive(Debug)]
pub struct Channels<C>(PhantomData<C>);

impl<C: Unsigned, H: Unsigned, W: Unsigned> ShapeRule<(C, H, W)> for Channels<C> {
    type Out = (C, H, W);
}

impl<C: Unsigned> ShapeRule<(C,)> for Channels<C> {
    type Out = (C,);
}

impl<C: Unsigned, L: Unsigned> ShapeRule<(C, L)> for Channels<C> {
    type Out = (C, L);
}

impl<C: Unsigned, D: Unsigned, H: Unsigned, W: Unsigned> ShapeRule<(C, D, H, W)> for Channels<C> {
    type Out = (C, D, H, W);
}

/// Elements of a row of the table.
#[derive(Debug)]
pub struct Gather<N>(PhantomData<N>);

impl<T: Unsigned, N: Unsigned> ShapeRule<(T,)> for Gather<N> {
    type Out = (T, N);
}

/// The axis, the first row and the number of rows that are taken.
#[derive(Debug)]
pub struct Slice<Axis, S, L>(PhantomData<(Axis, S, L)>);

macro_rules! slices {
    ($($number:ty: ($($before:ident),*) | ($($after:ident),*);)*) => {
        $(impl<$($before: Unsigned,)* P: Unsigned, $($after: Unsigned,)* S: ops::Add<L>, L: Unsigned>
            ShapeRule<($($before,)* P, $($after,)*)> for Slice<$number, S, L>
        where
            Sum<S, L>: IsLessOrEqual<P, Output = True>,
        {
            type Out = ($($before,)* L, $($after,)*);
        })*
    };
}
slices! {
    UTerm: () | ();
    UTerm: () | (A);
    UTerm: () | (A, B);
    UTerm: () | (A, B, C);
    U1: (A) | ();
    U1: (A) | (B);
    U1: (A) | (B, C);
    U2: (A, B) | ();
    U2: (A, B) | (C);
    U3: (A, B, C) | ();
}

/// A dimension of a shape by its number.
pub trait At<Axis> {
    /// The dimension.
    type Out: Unsigned;
}

macro_rules! dimensions_at {
    ($($number:ty: $which:ident of ($($all:ident),*);)*) => {
        $(impl<$($all: Unsigned),*> At<$number> for ($($all,)*) {
            type Out = $which;
        })*
    };
}
dimensions_at! {
    UTerm: A of (A, B);
    U1: B of (A, B);
    UTerm: A of (A, B, C);
    U1: B of (A, B, C);
    U2: C of (A, B, C);
    UTerm: A of (A, B, C, E);
    U1: B of (A, B, C, E);
    U2: C of (A, B, C, E);
    U3: E of (A, B, C, E);
}

macro_rules! permutations {
    ($($(#[$doc:meta])* $rule:ident<$($axis:ident),*>;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $rule<$($axis),*>(PhantomData<($($axis,)*)>);

            impl<In: $(At<$axis> +)*, $($axis),*> ShapeRule<In> for $rule<$($axis),*> {
                type Out = ($(<In as At<$axis>>::Out,)*);
            }
        )*
    };
}
permutations! {
    /// Which axis of two each axis of the output is.
    Permute2<I, J>;
    /// Which axis of three each axis of the output is.
    Permute3<I, J, K>;
    /// Which axis of four each axis of the output is.
    Permute4<I, J, K, L>;
}

/// Length of the second of three axes, which is left out.
#[derive(Debug)]
pub struct Reduce<N>(PhantomData<N>);

impl<A: Unsigned, N: Unsigned, B: Unsigned> ShapeRule<(A, N, B)> for Reduce<N> {
    type Out = (A, B);
}

/// Adds the lengths along an axis.
#[derive(Debug)]
pub struct Concat<Axis>(PhantomData<Axis>);

impl<A: ops::Add<B>, B> ShapeRule<((A,), (B,))> for Concat<UTerm>
where
    Sum<A, B>: Unsigned,
{
    type Out = (Sum<A, B>,);
}

impl<A: ops::Add<B>, B, N: Unsigned> ShapeRule<((A, N), (B, N))> for Concat<UTerm>
where
    Sum<A, B>: Unsigned,
{
    type Out = (Sum<A, B>, N);
}

impl<T: Unsigned, A: ops::Add<B>, B> ShapeRule<((T, A), (T, B))> for Concat<U1>
where
    Sum<A, B>: Unsigned,
{
    type Out = (T, Sum<A, B>);
}

impl<A: ops::Add<B>, B, H: Unsigned, W: Unsigned> ShapeRule<((A, H, W), (B, H, W))> for Concat<UTerm>
where
    Sum<A, B>: Unsigned,
{
    type Out = (Sum<A, B>, H, W);
}

/// Scale of the height and of the width.
#[derive(Debug)]
pub struct Resize<SH, SW>(PhantomData<(SH, SW)>);

impl<C: Unsigned, H: ops::Mul<SH>, W: ops::Mul<SW>, SH, SW> ShapeRule<(C, H, W)> for Resize<SH, SW>
where
    Prod<H, SH>: Unsigned,
    Prod<W, SW>: Unsigned,
{
    type Out = (C, Prod<H, SH>, Prod<W, SW>);
}

/// Heads of the queries, heads of keys and of values, and elements of a head: queries, keys and values side by side.
#[derive(Debug)]
pub struct Attention<H, K, S>(PhantomData<(H, K, S)>);

impl<T: Unsigned, M, H: ops::Mul<S>, K: ops::Mul<U2>, S> ShapeRule<(T, M)> for Attention<H, K, S>
where
    Prod<H, S>: Unsigned,
    H: ops::Add<Prod<K, U2>>,
    Sum<H, Prod<K, U2>>: ops::Mul<S, Output = M>,
{
    type Out = (T, Prod<H, S>);
}

/// Height and width of the output.
#[derive(Debug)]
pub struct AdaptivePool<H, W>(PhantomData<(H, W)>);

impl<C: Unsigned, H: Unsigned, W: Unsigned, OH: Unsigned, OW: Unsigned> ShapeRule<(C, H, W)> for AdaptivePool<OH, OW> {
    type Out = (C, OH, OW);
}

/// The number of positions of a window along one axis: `(self + 2 * P + E - D * (K - 1) - 1) / S + 1`, where `E` is what the
/// last window reads beyond as much padding at the end as at the beginning.
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

/// Kernel, stride, padding, dilation and overhang of the height, then of the width.
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

/// Output channels, then kernel, stride, padding, dilation and overhang of the height, then of the width.
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

/// The length of one axis: `(self - 1) * S + D * (K - 1) + E + 1 - 2 * P`.
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

/// Output channels, then kernel, stride, padding, dilation and output padding of the height, then of the width.
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

/// Height and width of the output, of what lies between the elements of the input.
#[derive(Debug)]
pub struct Interpolate<H, W>(PhantomData<(H, W)>);

impl<C: Unsigned, H: Unsigned, W: Unsigned, OH: Unsigned, OW: Unsigned> ShapeRule<(C, H, W)> for Interpolate<OH, OW> {
    type Out = (C, OH, OW);
}

/// Rows that are added and that are cut off, then columns.
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
