//! Operations: the closed set that programs are made of.
//!
//! Lowering, the plan and both backends read an operation's rule and nothing else. An operation has one gradient rule and one memory rule, so
//! two layers that save different tensors are two operations. Its inputs are activations as well as parameters.

use super::encoding::{Reader, Wire};
use super::ops;
pub use super::rule::{Edge, Gradient, Inference, Inputs, Layouts, Reads, Rule, Saved, TrainingOnly, Work, Workspace};
pub use super::sequence::Sequence;
use alloc::vec::Vec;
use core::ops::Deref;

/// Makes [`Op`] of the rows of [`for_each_operation!`](crate::for_each_operation).
macro_rules! op {
    ($($(#[$doc:meta])* $name:ident: $($module:ident)::+, [$($kernel:literal),*];)*) => {
        /// An operation with every dimension fixed. Its other methods are those of its [`Rule`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $($(#[$doc])* $name(ops::$name),)*
        }

        $(impl From<ops::$name> for Op {
            fn from(op: ops::$name) -> Op {
                Op::$name(op)
            }
        })*

        impl Deref for Op {
            type Target = dyn Rule;

            fn deref(&self) -> &Self::Target {
                match self { $(Op::$name(op) => op,)* }
            }
        }

        impl Op {
            /// Names of all operations, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Returns the name in texts.
            pub fn name(&self) -> &'static str {
                Op::NAMES[self.number()]
            }

            /// Returns the place in the list, which is the operation's number in encoded programs.
            fn number(&self) -> usize {
                enum Number { $($name),* }
                match self { $(Op::$name(_) => Number::$name as usize,)* }
            }
        }

        impl Wire for Op {
            fn put(&self, out: &mut Vec<u8>) {
                self.number().put(out);
                match self { $(Op::$name(op) => op.put(out),)* }
            }

            fn take(from: &mut Reader<'_>) -> Option<Op> {
                let operations: &[fn(&mut Reader<'_>) -> Option<Op>] = &[$(|from| Some(Op::$name(Wire::take(from)?))),*];
                operations.get(usize::take(from)?)?(from)
            }
        }
    };
}
crate::for_each_operation!(op);
