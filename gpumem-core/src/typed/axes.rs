//! Shape rules for any rank, up to [`Shape::MAX_RANK`](crate::shape::Shape::MAX_RANK) axes.

use super::{Dimensions, ShapeRule};
use core::marker::PhantomData;
use core::ops;
use typenum::{Diff, IsEqual, IsLessOrEqual, Max, Maximum, Prod, Sum, True, U0, U1, U2, U3, U4, U5, UTerm, Unsigned};

/// Rule of a view with all dimensions multiplied: the elements as one vector.
#[derive(Debug)]
pub struct Flatten;

impl<N: Unsigned> ShapeRule<(N,)> for Flatten {
    type Out = (N,);
}

/// Rule with the number of channels, the first axis. The shape does not change.
#[derive(Debug)]
pub struct Channels<C>(PhantomData<C>);

macro_rules! ranks {
    ($(($first:ident $(, $second:ident $(, $rest:ident)*)?))*) => {
        $(
            impl<$first: Unsigned $(, $second: Unsigned $(, $rest: Unsigned)*)?> Dimensions
                for ($first, $($second, $($rest,)*)?)
            {
            }

            impl<$first: Unsigned $(, $second: Unsigned $(, $rest: Unsigned)*)?>
                ShapeRule<($first, $($second, $($rest,)*)?)> for Channels<$first>
            {
                type Out = ($first, $($second, $($rest,)*)?);
            }

            $(
                // Merges the first two axes, so that one axis less is left.
                impl<$first: ops::Mul<$second>, $second $(, $rest)*> ShapeRule<($first, $second, $($rest,)*)> for Flatten
                where
                    Flatten: ShapeRule<(Prod<$first, $second>, $($rest,)*)>,
                {
                    type Out = <Flatten as ShapeRule<(Prod<$first, $second>, $($rest,)*)>>::Out;
                }
            )?
        )*
    };
}
ranks! { (A) (A, B) (A, B, C) (A, B, C, E) (A, B, C, E, F) (A, B, C, E, F, G) }

/// Rule of two inputs whose shapes are broadcast as in numpy.
#[derive(Debug)]
pub struct Broadcast;

/// The dimension to which two dimensions are broadcast: the larger one. Each must be equal to it or 1.
///
/// `(larger - a) * (a - 1) = 0` expresses that.
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

/// A shape with leading axes of length 1 added, until it has as many axes as another one.
pub trait Align<Other> {
    /// The longer shape.
    type Out;
}

macro_rules! alignments {
    ($([$($one:ident),*] ($($short:ident),*) to ($($long:ident),*);)*) => {
        $(impl<$($short,)* $($long),*> Align<($($long,)*)> for ($($short,)*) {
            type Out = ($($one,)* $($short,)*);
        })*
    };
}
alignments! {
    [] (A) to (H);
    [U1] (A) to (H, I);
    [U1, U1] (A) to (H, I, J);
    [U1, U1, U1] (A) to (H, I, J, K);
    [U1, U1, U1, U1] (A) to (H, I, J, K, L);
    [U1, U1, U1, U1, U1] (A) to (H, I, J, K, L, M);
    [] (A, B) to (H);
    [] (A, B) to (H, I);
    [U1] (A, B) to (H, I, J);
    [U1, U1] (A, B) to (H, I, J, K);
    [U1, U1, U1] (A, B) to (H, I, J, K, L);
    [U1, U1, U1, U1] (A, B) to (H, I, J, K, L, M);
    [] (A, B, C) to (H);
    [] (A, B, C) to (H, I);
    [] (A, B, C) to (H, I, J);
    [U1] (A, B, C) to (H, I, J, K);
    [U1, U1] (A, B, C) to (H, I, J, K, L);
    [U1, U1, U1] (A, B, C) to (H, I, J, K, L, M);
    [] (A, B, C, E) to (H);
    [] (A, B, C, E) to (H, I);
    [] (A, B, C, E) to (H, I, J);
    [] (A, B, C, E) to (H, I, J, K);
    [U1] (A, B, C, E) to (H, I, J, K, L);
    [U1, U1] (A, B, C, E) to (H, I, J, K, L, M);
    [] (A, B, C, E, F) to (H);
    [] (A, B, C, E, F) to (H, I);
    [] (A, B, C, E, F) to (H, I, J);
    [] (A, B, C, E, F) to (H, I, J, K);
    [] (A, B, C, E, F) to (H, I, J, K, L);
    [U1] (A, B, C, E, F) to (H, I, J, K, L, M);
    [] (A, B, C, E, F, G) to (H);
    [] (A, B, C, E, F, G) to (H, I);
    [] (A, B, C, E, F, G) to (H, I, J);
    [] (A, B, C, E, F, G) to (H, I, J, K);
    [] (A, B, C, E, F, G) to (H, I, J, K, L);
    [] (A, B, C, E, F, G) to (H, I, J, K, L, M);
}

/// Broadcasting of two shapes of one rank, dimension by dimension.
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
stretched! { (A H) (A H, B I) (A H, B I, C J) (A H, B I, C J, E K) (A H, B I, C J, E K, F L) (A H, B I, C J, E K, F L, G M) }

impl<L, R> ShapeRule<(L, R)> for Broadcast
where
    L: Align<R>,
    R: Align<L>,
    <L as Align<R>>::Out: StretchAll<<R as Align<L>>::Out>,
{
    type Out = <<L as Align<R>>::Out as StretchAll<<R as Align<L>>::Out>>::Out;
}

/// Rule of a matrix product, `[M, K]` times `[K, N]`.
#[derive(Debug)]
pub struct MatMul;

/// Rule of a matrix product whose second matrix is transposed, `[M, K]` times `[N, K]`.
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
matrices! { () (A) (A, B) (A, B, C) (A, B, C, E) }

/// Rule with heads of the queries, heads of keys and of values, and elements of a head. Queries, keys and values share a row.
#[derive(Debug)]
pub struct Attention<H, K, S>(PhantomData<(H, K, S)>);

/// Rule of attention with three inputs. Unlike [`Attention`], it also has the elements of a head of the values.
#[derive(Debug)]
pub struct AttentionApart<H, K, S, V>(PhantomData<(H, K, S, V)>);

/// Rule with the number of positions T: `[T, T]` for each head, a column of the table.
#[derive(Debug)]
pub struct RelativeBias<T>(PhantomData<T>);

impl<R, H: Unsigned, T: Unsigned> ShapeRule<(R, H)> for RelativeBias<T> {
    type Out = (H, T, T);
}

macro_rules! sequences {
    ($(($($axis:ident),*))*) => {
        $(
            impl<$($axis: Unsigned,)* T: Unsigned, In, H: ops::Mul<S>, K: ops::Mul<U2>, S> ShapeRule<($($axis,)* T, In)>
                for Attention<H, K, S>
            where
                Prod<H, S>: Unsigned,
                H: ops::Add<Prod<K, U2>>,
                Sum<H, Prod<K, U2>>: ops::Mul<S, Output = In>,
            {
                type Out = ($($axis,)* T, Prod<H, S>);
            }

            impl<$($axis: Unsigned,)* T: Unsigned, M, Q, P, R, H: ops::Mul<S, Output = Q>, K: ops::Mul<S, Output = P>, S, V>
                ShapeRule<(($($axis,)* T, Q), ($($axis,)* M, P), ($($axis,)* M, R))> for AttentionApart<H, K, S, V>
            where
                H: ops::Mul<V>,
                K: ops::Mul<V, Output = R>,
                Prod<H, V>: Unsigned,
            {
                type Out = ($($axis,)* T, Prod<H, V>);
            }
        )*
    };
}
sequences! { () (A) (A, B) (A, B, C) (A, B, C, E) }

/// A dimension of a shape by its index.
pub trait At<Axis> {
    /// The dimension.
    type Out: Unsigned;
}

/// Rule with an axis, the first row and the number of rows that are taken.
#[derive(Debug)]
pub struct Slice<Axis, S, L>(PhantomData<(Axis, S, L)>);

/// Rule that adds the lengths along an axis.
#[derive(Debug)]
pub struct Concat<Axis>(PhantomData<Axis>);

/// The axis along which the second input has indices of the first.
#[derive(Debug)]
pub struct TakeAlong<Axis>(PhantomData<Axis>);

/// The axis along which the second input has indices of the first, and the third is added by them.
#[derive(Debug)]
pub struct ScatterAdd<Axis>(PhantomData<Axis>);

macro_rules! axes {
    ($($number:ty: ($($before:ident),*) | ($($after:ident),*);)*) => {
        $(
            impl<$($before,)* N: Unsigned, $($after),*> At<$number> for ($($before,)* N, $($after,)*) {
                type Out = N;
            }

            impl<$($before: Unsigned,)* N: Unsigned, $($after: Unsigned,)* S: ops::Add<L>, L: Unsigned>
                ShapeRule<($($before,)* N, $($after,)*)> for Slice<$number, S, L>
            where
                Sum<S, L>: IsLessOrEqual<N, Output = True>,
            {
                type Out = ($($before,)* L, $($after,)*);
            }

            impl<$($before: Unsigned,)* N: Unsigned, M: Unsigned, $($after: Unsigned),*>
                ShapeRule<(($($before,)* N, $($after,)*), ($($before,)* M, $($after,)*))> for TakeAlong<$number>
            {
                type Out = ($($before,)* M, $($after,)*);
            }

            impl<$($before: Unsigned,)* N: Unsigned, M: Unsigned, $($after: Unsigned),*>
                ShapeRule<(($($before,)* N, $($after,)*), ($($before,)* M, $($after,)*), ($($before,)* M, $($after,)*))>
                for ScatterAdd<$number>
            {
                type Out = ($($before,)* N, $($after,)*);
            }

            impl<$($before: Unsigned,)* A: ops::Add<B>, B, $($after: Unsigned),*>
                ShapeRule<(($($before,)* A, $($after,)*), ($($before,)* B, $($after,)*))> for Concat<$number>
            where
                Sum<A, B>: Unsigned,
            {
                type Out = ($($before,)* Sum<A, B>, $($after,)*);
            }
        )*
    };
}
axes! {
    UTerm: () | ();
    UTerm: () | (C);
    U1: (C) | ();
    UTerm: () | (C, D);
    U1: (C) | (D);
    U2: (C, D) | ();
    UTerm: () | (C, D, E);
    U1: (C) | (D, E);
    U2: (C, D) | (E);
    U3: (C, D, E) | ();
    UTerm: () | (C, D, E, F);
    U1: (C) | (D, E, F);
    U2: (C, D) | (E, F);
    U3: (C, D, E) | (F);
    U4: (C, D, E, F) | ();
    UTerm: () | (C, D, E, F, G);
    U1: (C) | (D, E, F, G);
    U2: (C, D) | (E, F, G);
    U3: (C, D, E) | (F, G);
    U4: (C, D, E, F) | (G);
    U5: (C, D, E, F, G) | ();
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
    /// Rule with the input's axis for each of two axes of the output.
    Permute2<I, J>;
    /// Rule with the input's axis for each of three axes of the output.
    Permute3<I, J, K>;
    /// Rule with the input's axis for each of four axes of the output.
    Permute4<I, J, K, L>;
    /// Rule with the input's axis for each of five axes of the output.
    Permute5<I, J, K, L, M>;
    /// Rule with the input's axis for each of six axes of the output.
    Permute6<I, J, K, L, M, N>;
}

macro_rules! strided {
    ($($(#[$doc:meta])* $rule:ident<$($length:ident),*>;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $rule<R, $($length),*>(PhantomData<(R, $($length,)*)>);

            impl<In, N, R, $($length: Unsigned),*> ShapeRule<In> for $rule<R, $($length),*>
            where
                Flatten: ShapeRule<In, Out = (N,)>,
                R: IsLessOrEqual<N, Output = True>,
            {
                type Out = ($($length,)*);
            }
        )*
    };
}
strided! {
    /// Elements up to the last that is read, and the length of the axis.
    AsStrided1<A>;
    /// Elements up to the last that is read, and the lengths of two axes.
    AsStrided2<A, B>;
    /// Elements up to the last that is read, and the lengths of three axes.
    AsStrided3<A, B, C>;
    /// Elements up to the last that is read, and the lengths of four axes.
    AsStrided4<A, B, C, E>;
    /// Elements up to the last that is read, and the lengths of five axes.
    AsStrided5<A, B, C, E, F>;
    /// Elements up to the last that is read, and the lengths of six axes.
    AsStrided6<A, B, C, E, F, G>;
}
