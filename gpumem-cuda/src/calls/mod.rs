//! Calls that operations make to a card, as plain data that needs no device.
//!
//! | module | call |
//! | --- | --- |
//! | [`launch`] | a kernel of gpumem with its constants, grid and tensors |
//! | [`product`] | a matrix product, in cuBLASLt's terms |
//! | [`convolution`] | a convolution, in cuDNN's terms |
//! | [`attention`] | attention, in cuDNN's terms |
//! | [`recurrence`] | a recurrent layer, in cuDNN's terms |
//! | [`host_copy`] | copies between host memory and the arena |
//! | [`exchange`] | exchanges between ranks, in NCCL's terms |

pub mod attention;
pub mod convolution;
pub mod exchange;
pub(crate) mod formulas;
pub mod host_copy;
pub mod launch;
mod operation_calls;
pub mod product;
pub mod recurrence;
mod sources;

pub use attention::Attention;
pub use convolution::Convolution;
pub use exchange::Exchange;
pub use host_copy::Passage;
pub(crate) use launch::TOGETHER;
pub use launch::{Argument, Kernel, Launch, place, second_half, type_name};
pub use operation_calls::OperationCalls;
pub use product::Product;
pub use recurrence::Recurrence;
pub use sources::SOURCES;

/// A call that an operation makes to the card.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// A launch of one of gpumem's own kernels.
    Kernel(Launch),
    /// A matrix product by cuBLASLt.
    Product(Product),
    /// A convolution by cuDNN.
    Convolution(Convolution),
    /// Attention by cuDNN.
    Attention(Attention),
    /// A recurrent layer by cuDNN.
    Recurrence(Recurrence),
    /// Copies between host memory and the arena.
    Passage(Passage),
    /// An exchange with other ranks by NCCL.
    Exchange(Exchange),
}

impl From<Launch> for Call {
    fn from(launch: Launch) -> Call {
        Call::Kernel(launch)
    }
}

impl From<Product> for Call {
    fn from(product: Product) -> Call {
        Call::Product(product)
    }
}

impl From<Attention> for Call {
    fn from(attention: Attention) -> Call {
        Call::Attention(attention)
    }
}

impl From<Recurrence> for Call {
    fn from(recurrence: Recurrence) -> Call {
        Call::Recurrence(recurrence)
    }
}

impl From<Passage> for Call {
    fn from(passage: Passage) -> Call {
        Call::Passage(passage)
    }
}

impl From<Convolution> for Call {
    fn from(convolution: Convolution) -> Call {
        Call::Convolution(convolution)
    }
}
