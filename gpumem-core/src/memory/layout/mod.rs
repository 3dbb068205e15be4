//! Layouts: the feature maps, and the weights of convolutions, whose channels lie last.

pub mod channels_last;
pub mod channels_last_weights;
pub mod shards;
