//! Memory layouts of a sample's elements.
//!
//! Maps have an order of axes. So have the weights of convolutions, `[O, C, R, S]`: each of the O filters is stored as a map is.

use super::encoding::{record, wire_enum};
use super::op::Layouts;
use super::{Action, Operand, Operation, Program, Slot, Tensor};
use crate::number::Precision;
use crate::shape::{Shape, product};
use alloc::vec::Vec;

/// The order of the axes of a map, or of a filter of a convolution's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChannelOrder {
    /// `[C, H, W]`, the order of shapes.
    ChannelsFirst,
    /// `[H, W, C]`: the channels of a pixel are adjacent. Shapes are written `[C, H, W]` all the same.
    ChannelsLast,
}
wire_enum!(ChannelOrder { ChannelsFirst, ChannelsLast });

record! {
    /// The layout of a sample's elements in memory.
    #[derive(Copy, Eq)]
    pub struct Layout {
        /// The order of axes. Shapes that are neither a map nor a weight have one order only.
        pub order: ChannelOrder,
        /// The pitch: elements from one row of the innermost axis to the next. 0 if rows have no padding.
        pub pitch: u64,
    }
}

/// Elements between neighbours along each axis of a map, and between samples. The samples of a weight are its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Between samples: the elements that a sample takes.
    pub sample: u64,
    /// Between channels.
    pub channel: u64,
    /// Between rows.
    pub row: u64,
    /// Between columns.
    pub column: u64,
}

impl Layout {
    /// The order of the shape, without padding.
    pub const DENSE: Layout = Layout { order: ChannelOrder::ChannelsFirst, pitch: 0 };

    /// Channels innermost, without padding.
    pub const CHANNELS_LAST: Layout = Layout { order: ChannelOrder::ChannelsLast, pitch: 0 };

    /// True if elements are in the order of the shape, without padding.
    pub fn is_dense(&self) -> bool {
        *self == Layout::DENSE
    }

    /// True if a weight `[O, C, R, S]` is stored as `[O, R, S, C]`, without padding.
    pub fn is_of_weight(&self, shape: Shape) -> bool {
        *self == Layout::CHANNELS_LAST && shape.dims().len() == 4
    }

    /// Returns the channels, rows and columns of a map, or of a filter in channels last. `None` for other shapes.
    fn planes(&self, shape: Shape) -> Option<[u64; 3]> {
        match (self.order, shape.dims()) {
            (_, &[channels, height, width]) | (ChannelOrder::ChannelsLast, &[_, channels, height, width]) => {
                Some([channels, height, width])
            }
            _ => None,
        }
    }

    /// Returns the elements that a sample takes, padding included. `None` if they exceed `u64`, if the pitch is shorter than a row, or if a
    /// shape without channels has its channels last.
    pub fn elements(&self, shape: Shape) -> Option<u64> {
        let inner = match self.order {
            ChannelOrder::ChannelsLast => self.planes(shape)?[0],
            ChannelOrder::ChannelsFirst => shape.last(),
        };
        match self.pitch {
            0 => shape.elements(),
            pitch if pitch < inner => None,
            pitch => shape.elements()?.checked_div(inner)?.checked_mul(pitch),
        }
    }

    /// Returns the channels, rows and columns of a sample, and its strides. The samples of a weight in channels last are its filters. The
    /// last axis of any other shape is its columns, and all others are its rows. `None` as for [`Layout::elements`].
    pub fn places(&self, shape: Shape) -> Option<([u64; 3], Strides)> {
        if let Some(planes) = self.planes(shape) {
            return Some((planes, self.strides(shape)?));
        }
        let (sample, row) = (self.elements(shape)?, if self.pitch == 0 { shape.last() } else { self.pitch });
        let rows = sample.checked_div(row)?;
        Some(([1, rows, shape.last()], Strides { sample, channel: sample, row, column: 1 }))
    }

    /// Returns the strides of a map, or of a weight in channels last. `None` for any other shape, and as for
    /// [`Layout::elements`].
    pub fn strides(&self, shape: Shape) -> Option<Strides> {
        let [channels, height, width] = self.planes(shape)?;
        // The elements of all filters of a weight must be countable, too.
        let sample = self.elements(shape).and(self.elements(Shape::new(&[channels, height, width])))?;
        let pitch = |length: u64| if self.pitch == 0 { length } else { self.pitch };
        Some(match self.order {
            ChannelOrder::ChannelsFirst => {
                let row = pitch(width);
                Strides { sample, channel: product(&[height, row]), row, column: 1 }
            }
            ChannelOrder::ChannelsLast => {
                let column = pitch(channels);
                Strides { sample, channel: 1, row: product(&[width, column]), column }
            }
        })
    }
}

impl Program {
    /// Sets the pitch that rows have in this format: see [`Tensor::pitch`].
    pub fn lay_out(&mut self, precision: Precision) {
        let narrow = precision.narrow().bytes() < 4;
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.pitch > 0) {
            tensor.layout.pitch = if narrow { tensor.pitch } else { 0 };
        }
    }

    /// True if an operation can run on its tensors in their layouts: see [`Layouts`]. An operation can always run if all its tensors are
    /// dense.
    pub fn takes_layouts(&self, operation: &Operation) -> bool {
        // A backend reports a tensor that does not exist.
        if operation.tensors().any(|id| id as usize >= self.tensors.len()) {
            return true;
        }
        let tensor = |id: super::TensorId| self.tensor(id);
        if operation.tensors().all(|id| tensor(id).layout.is_dense()) {
            return true;
        }
        if operation.action.is_exchange() {
            // It moves elements in the order in which they are in memory.
            return operation.exchanged().all(|(sent, received)| tensor(sent).layout == tensor(received).layout);
        }
        let layouts = match &operation.action {
            Action::Run { op, .. } => op.layouts(),
            Action::Accumulate
            | Action::Collect
            | Action::Copy
            | Action::SumBatch
            | Action::Check
            | Action::Squares(_)
            | Action::Update
            | Action::Fetch(_)
            | Action::UpdatePiece(_)
            | Action::Store(_)
            | Action::Average
            | Action::AveragePiece(_)
            | Action::Park(_) => Layouts::Alike,
            Action::Loss(criterion) if criterion.is_of_rows() => {
                Layouts::Rows(&[Slot::Input(0), Slot::InputGradient(0)])
            }
            Action::Loss(_)
            | Action::Norm
            | Action::Advance
            | Action::Settle
            | Action::SaveStatistics(_)
            | Action::RestoreStatistics(_)
            | Action::Exchange(_)
            | Action::EndExchange(_) => Layouts::Dense,
        };
        match layouts {
            Layouts::Dense => false,
            Layouts::Maps(maps) => {
                let is_known = |tensor: &Tensor| tensor.shape.as_map().is_some() || tensor.is_turned();
                let lies =
                    |tensor: &Tensor| tensor.layout.is_dense() || maps.contains(&tensor.shape) && is_known(tensor);
                operation.tensors().all(|id| lies(tensor(id)))
            }
            Layouts::Filters(shape) => {
                let (weights, others): (Vec<&Tensor>, Vec<&Tensor>) =
                    operation.tensors().map(tensor).partition(|tensor| tensor.shape == shape);
                let is_one = weights.iter().all(|it| it.is_turned()) || weights.iter().all(|it| it.layout.is_dense());
                is_one && others.iter().all(|it| it.layout.is_dense())
            }
            Layouts::Rows(slots) => {
                let mut operands = operation.reads.iter().chain(&operation.writes);
                operands.all(|operand| {
                    let Layout { order, pitch } = tensor(operand.tensor).layout;
                    order == ChannelOrder::ChannelsFirst && (pitch == 0 || slots.contains(&operand.slot))
                })
            }
            Layouts::Alike => {
                let operands = operation.reads.iter().chain(&operation.writes);
                // Optimizer state that is smaller than its parameter has a layout of its own.
                let leader = operation.tensors().next().map(tensor);
                let is_apart = |operand: &Operand| match operand.slot {
                    Slot::State | Slot::Workspace | Slot::Master => true,
                    Slot::Moment(_) => {
                        let it = tensor(operand.tensor);
                        it.layout.is_dense() && leader.is_some_and(|leader| it.shape != leader.shape)
                    }
                    _ => false,
                };
                let mut all = operands.filter(|operand| !is_apart(operand)).map(|it| tensor(it.tensor));
                let first = all.next();
                all.all(|other| first.is_some_and(|it| (it.shape, it.layout) == (other.shape, other.layout)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_in_both_orders_with_and_without_gaps() {
        let map = Shape::new(&[3, 4, 5]);
        let strides = |order, pitch| Layout { order, pitch }.strides(map);
        let at = |sample, channel, row, column| Some(Strides { sample, channel, row, column });
        assert_eq!(strides(ChannelOrder::ChannelsFirst, 0), at(60, 20, 5, 1));
        assert_eq!(strides(ChannelOrder::ChannelsFirst, 8), at(96, 32, 8, 1));
        assert_eq!(strides(ChannelOrder::ChannelsLast, 0), at(60, 1, 15, 3));
        assert_eq!(strides(ChannelOrder::ChannelsLast, 4), at(80, 1, 20, 4));
        assert_eq!(strides(ChannelOrder::ChannelsFirst, 4), None);
        assert_eq!(strides(ChannelOrder::ChannelsLast, 2), None);
    }

    #[test]
    fn filters_of_a_weight_lie_as_maps_do() {
        let weight = Shape::new(&[6, 3, 4, 5]);
        let last = Layout::CHANNELS_LAST;
        let strides = Strides { sample: 60, channel: 1, row: 15, column: 3 };
        assert_eq!(last.elements(weight), Some(360));
        assert_eq!(last.places(weight), Some(([3, 4, 5], strides)));
        assert!(last.is_of_weight(weight) && !last.is_of_weight(Shape::new(&[3, 4, 5])));
        // In the order of its shape a weight has rows, as any other shape.
        let strides = Strides { sample: 360, channel: 360, row: 5, column: 1 };
        assert_eq!(Layout::DENSE.places(weight), Some(([1, 72, 5], strides)));
        assert!(Layout::DENSE.strides(weight).is_none() && !Layout::DENSE.is_of_weight(weight));
        let huge = Shape::new(&[1 << 40, 1 << 12, 1 << 6, 1 << 6]);
        assert_eq!(last.places(huge), None);
    }

    #[test]
    fn other_shapes_have_a_pitch_of_their_last_axis() {
        let sequence = Shape::new(&[7, 6]);
        assert_eq!(Layout::DENSE.elements(sequence), Some(42));
        assert_eq!(Layout { pitch: 8, ..Layout::DENSE }.elements(sequence), Some(56));
        assert_eq!(Layout { pitch: 8, ..Layout::DENSE }.strides(sequence), None);
        let strides = Strides { sample: 56, channel: 56, row: 8, column: 1 };
        assert_eq!(Layout { pitch: 8, ..Layout::DENSE }.places(sequence), Some(([1, 7, 6], strides)));
        assert_eq!(Layout { order: ChannelOrder::ChannelsLast, pitch: 0 }.elements(sequence), None);
    }
}
