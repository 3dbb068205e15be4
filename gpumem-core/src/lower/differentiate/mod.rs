//! Turns a graph into a draft: the forward pass, the loss and the backward pass as operations on tensors.

pub(in crate::lower) mod backward;
pub(in crate::lower) mod builder;
pub(in crate::lower) mod forward;
